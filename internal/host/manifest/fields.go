package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// meaning says what becomes of a field.
type meaning int

const (
	// honoured fields do here what they do on a cluster.
	honoured meaning = iota
	// unused fields have no meaning on one machine; they are reported.
	unused
	// silent fields have no meaning either and are nobody's concern, such as a
	// status that a cluster printed.
	silent
)

// fields is the contract of one kind: what is not listed, and set, is refused.
// A path covers everything below it. "[]" stands for any element of a list.
type fields map[string]meaning

func common() fields {
	return fields{
		"apiVersion": honoured, "kind": honoured, "status": silent,
		"metadata.name": honoured, "metadata.namespace": honoured, "metadata.labels": honoured, "metadata.annotations": honoured,
		"metadata.uid": silent, "metadata.resourceVersion": silent, "metadata.generation": silent,
		"metadata.creationTimestamp": silent, "metadata.managedFields": silent,
	}
}

// contract returns what the host does with the fields of a kind.
func contract(kind string) fields {
	table := common()
	switch kind {
	case "StorageClass":
		table.set(honoured, "", "provisioner", "parameters", "reclaimPolicy", "mountOptions", "allowVolumeExpansion", "allowedTopologies",
			"volumeBindingMode") // with one node, both modes choose the same
	case "CSIDriver":
		table.set(honoured, "spec.", "attachRequired", "podInfoOnMount", "volumeLifecycleModes", "fsGroupPolicy")
		table.set(unused, "spec.", "storageCapacity", "nodeAllocatableUpdatePeriodSeconds", "preventPodSchedulingIfMissing", "seLinuxMount")
	case "PersistentVolumeClaim":
		table.set(honoured, "spec.", "accessModes", "volumeMode", "storageClassName", "resources.requests.storage", "resources.limits.storage",
			"dataSource", "dataSourceRef")
	case "Pod":
		podFields(table)
	}
	return table
}

func podFields(table fields) {
	table.set(honoured, "spec.", "serviceAccountName", "hostname", "terminationGracePeriodSeconds", "hostNetwork",
		"volumes[].name", "volumes[].persistentVolumeClaim", "volumes[].csi.driver", "volumes[].csi.readOnly", "volumes[].csi.fsType",
		"volumes[].csi.volumeAttributes", "volumes[].emptyDir")
	table.set(honoured, "spec.securityContext.", "runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "fsGroup", "fsGroupChangePolicy")
	table.set(unused, "spec.securityContext.", "seccompProfile", "seLinuxOptions", "appArmorProfile", "seLinuxChangePolicy", "supplementalGroupsPolicy")
	table.set(unused, "spec.", "restartPolicy", "nodeSelector", "nodeName", "affinity", "tolerations", "priorityClassName", "priority",
		"preemptionPolicy", "schedulerName", "topologySpreadConstraints", "imagePullSecrets", "automountServiceAccountToken",
		"enableServiceLinks", "dnsPolicy", "dnsConfig", "serviceAccount", "os")
	for _, containers := range []string{"spec.containers[].", "spec.initContainers[]."} {
		table.set(honoured, containers, "name", "command", "args", "workingDir", "env[].name", "env[].value", "env[].valueFrom.fieldRef",
			"volumeMounts[].name", "volumeMounts[].mountPath", "volumeMounts[].readOnly", "volumeMounts[].subPath", "volumeDevices")
		table.set(honoured, containers+"securityContext.", "runAsUser", "runAsGroup", "runAsNonRoot", "allowPrivilegeEscalation",
			"readOnlyRootFilesystem", "capabilities", "privileged")
		table.set(unused, containers, "image", "imagePullPolicy", "resources", "ports", "livenessProbe", "readinessProbe", "startupProbe",
			"terminationMessagePath", "terminationMessagePolicy")
		table.set(unused, containers+"securityContext.", "seccompProfile", "seLinuxOptions", "appArmorProfile")
	}
}

func (f fields) set(what meaning, prefix string, names ...string) {
	for _, name := range names {
		f[prefix+name] = what
	}
}

// checkFields goes through everything that a document sets.
func checkFields(kind string, data []byte) (unusedFields, problems []string) {
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, []string{err.Error()}
	}
	walk := walk{table: contract(kind)}
	walk.visit("", "", tree)
	return walk.unused, walk.problems
}

type walk struct {
	table            fields
	unused, problems []string
}

// visit looks at one value. pattern is its path with "[]" for every index.
func (w *walk) visit(path, pattern string, value any) {
	if isEmpty(value) {
		return
	}
	if what, listed := w.table[pattern]; listed {
		if what == unused && !isAlreadySo(pattern, value) {
			w.unused = append(w.unused, path+scalar(value))
		}
		return
	}
	if !w.table.covers(pattern) {
		w.problems = append(w.problems, fmt.Sprintf("%s: is not supported on one machine", path))
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			w.visit(join(path, key), join(pattern, key), value[key])
		}
	case []any:
		for i, element := range value {
			w.visit(path+"["+strconv.Itoa(i)+"]", pattern+"[]", element)
		}
	}
}

// scalar shows a short value, such as the name of an image.
func scalar(value any) string {
	if text, ok := value.(string); ok && len(text) < 80 {
		return " (" + text + ")"
	}
	return ""
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// covers tells whether something below the pattern is listed.
func (f fields) covers(pattern string) bool {
	if pattern == "" {
		return true
	}
	for path := range f {
		if strings.HasPrefix(path, pattern+".") || strings.HasPrefix(path, pattern+"[]") {
			return true
		}
	}
	return false
}

// isEmpty tells whether a value says nothing: Kubernetes' types leave such
// fields out when they write.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		for _, element := range value {
			if !isEmpty(element) {
				return false
			}
		}
		return true
	}
	return false
}

// isAlreadySo tells whether an unused field asks for what happens anyway.
func isAlreadySo(pattern string, value any) bool {
	return pattern == "spec.restartPolicy" && value == "Never"
}
