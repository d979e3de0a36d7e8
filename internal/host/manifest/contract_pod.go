package manifest

import "strings"

const (
	noSource  = "only persistentVolumeClaim, csi, ephemeral, emptyDir, secret, configMap and projected are served"
	inMemory  = "in the container's memory; changed values are seen by the next start of the container"
	noSandbox = "containers share the machine's own view"
	labelled  = "as the volume's mount option `context=`; processes are not labelled"
)

func podFields(c *contract) {
	c.honour("spec.", "restartPolicy", "terminationGracePeriodSeconds", "serviceAccountName", "hostname")
	c.note(Honoured, "the network is the machine's in any case", "spec.", "hostNetwork")
	c.unused("spec.", "nodeSelector", "nodeName", "affinity", "tolerations", "priorityClassName", "priority",
		"preemptionPolicy",
		"schedulerName", "schedulingGroup", "topologySpreadConstraints", "imagePullSecrets", "automountServiceAccountToken",
		"enableServiceLinks", "dnsPolicy", "dnsConfig", "serviceAccount", "os", "overhead", "resources", "readinessGates", "evictionResponders")
	c.refuse(noSandbox, "spec.", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace", "hostAliases", "subdomain",
		"setHostnameAsFQDN", "hostnameOverride", "runtimeClassName")
	c.refuse("", "spec.", "activeDeadlineSeconds", "ephemeralContainers", "schedulingGates", "resourceClaims")
	podSecurityFields(c, "spec.securityContext.")
	podVolumeFields(c, "spec.volumes[].")
	for _, containers := range []string{"spec.containers[].", "spec.initContainers[]."} {
		containerFields(c, containers)
	}
}

func podSecurityFields(c *contract, prefix string) {
	c.honour(prefix, "runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "fsGroup", "fsGroupChangePolicy")
	c.note(Honoured, labelled, prefix, "seLinuxOptions", "seLinuxChangePolicy")
	c.unused(prefix, "seccompProfile", "appArmorProfile", "supplementalGroupsPolicy")
	c.refuse(noSandbox, prefix, "sysctls", "windowsOptions")
}

func podVolumeFields(c *contract, prefix string) {
	c.honour(prefix, "name", "persistentVolumeClaim.claimName", "persistentVolumeClaim.readOnly",
		"csi.driver", "csi.readOnly", "csi.fsType", "csi.volumeAttributes", "csi.nodePublishSecretRef")
	c.note(Honoured, "a directory that goes with the pod", prefix, "emptyDir")
	for _, source := range []string{"secret.secretName", "configMap.name", "projected.sources[].secret.name", "projected.sources[].configMap.name"} {
		stem := prefix + source[:strings.LastIndex(source, ".")]
		c.note(Honoured, inMemory, prefix, source)
		c.note(Honoured, inMemory, stem, ".items[].key", ".items[].path", ".items[].mode", ".optional")
	}
	c.note(Honoured, inMemory, prefix, "secret.defaultMode", "configMap.defaultMode", "projected.defaultMode")
	c.refuse("only secret and configMap are served", prefix, "projected.sources[].downwardAPI", "projected.sources[].serviceAccountToken",
		"projected.sources[].clusterTrustBundle", "projected.sources[].podCertificate")
	c.refuse("the files are root's", prefix, "secret.defaultUser", "secret.items[].user", "configMap.defaultUser", "configMap.items[].user",
		"projected.defaultUser", "projected.sources[].secret.items[].user", "projected.sources[].configMap.items[].user")
	c.refuse("an emptyDir is a directory of this machine, without a limit", prefix, "emptyDir.medium",
		"emptyDir.sizeLimit", "emptyDir.mode")
	template := prefix + "ephemeral.volumeClaimTemplate."
	c.honour(template+"metadata.", "labels", "annotations")
	c.note(Silent, "set by the host", template+"metadata.", "creationTimestamp")
	c.refuse("the claim is named after the pod and the volume", template+"metadata.", "name", "generateName",
		"namespace", "selfLink", "uid",
		"resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields")
	claimFields(c, template+"spec.")
	c.refuse(noSource, prefix, "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi",
		"glusterfs", "rbd",
		"flexVolume", "cinder", "cephfs", "flocker", "downwardAPI", "fc", "azureFile", "vsphereVolume", "quobyte",
		"azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos", "image")
}

func containerFields(c *contract, prefix string) {
	c.honour(prefix, "name", "command", "args", "workingDir", "env[].name", "env[].value", "env[].valueFrom.fieldRef",
		"env[].valueFrom.secretKeyRef", "env[].valueFrom.configMapKeyRef", "envFrom[].prefix", "envFrom[].secretRef", "envFrom[].configMapRef",
		"volumeMounts[].name", "volumeMounts[].mountPath", "volumeMounts[].readOnly", "volumeMounts[].subPath", "volumeDevices")
	c.unused(prefix, "image", "imagePullPolicy", "resources", "resizePolicy", "ports", "livenessProbe",
		"readinessProbe", "startupProbe",
		"terminationMessagePath", "terminationMessagePolicy")
	c.refuse("only fieldRef, secretKeyRef and configMapKeyRef are served", prefix, "env[].valueFrom.resourceFieldRef",
		"env[].valueFrom.fileKeyRef")
	c.refuse("", prefix, "lifecycle", "restartPolicy", "restartPolicyRules", "stdin", "stdinOnce", "tty",
		"volumeMounts[].recursiveReadOnly", "volumeMounts[].mountPropagation", "volumeMounts[].subPathExpr", "volumeMounts[].bindMountOptions")
	security := prefix + "securityContext."
	c.honour(security, "runAsUser", "runAsGroup", "runAsNonRoot", "allowPrivilegeEscalation", "readOnlyRootFilesystem",
		"capabilities", "privileged")
	c.note(Honoured, labelled, security, "seLinuxOptions")
	c.unused(security, "seccompProfile", "appArmorProfile")
	c.refuse(noSandbox, security, "procMount", "windowsOptions")
}

// isAlreadySo reports whether a field that is not honoured has the value that the host
// implies.
func isAlreadySo(pattern string, value any) bool {
	switch pattern {
	case "spec.hostUsers":
		return value == true
	case "spec.containers[].volumeMounts[].mountPropagation", "spec.initContainers[].volumeMounts[].mountPropagation":
		return value == "None"
	case "spec.containers[].volumeMounts[].recursiveReadOnly", "spec.initContainers[].volumeMounts[].recursiveReadOnly":
		return value == "Disabled"
	case "spec.containers[].securityContext.procMount", "spec.initContainers[].securityContext.procMount":
		return value == "Default"
	}
	return false
}

// isMeaningfulZero reports whether an empty value changes the behaviour.
func isMeaningfulZero(pattern string, value any) bool {
	return pattern == "spec.hostUsers" && value == false
}
