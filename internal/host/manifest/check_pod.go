package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

// HolderAnnotation names who runs a pod's processes when it is not the host,
// which then only brings the volumes.
const HolderAnnotation = "holdfast.dev/holder"

// podVolume says how a pod's containers may use one of its volumes.
type podVolume struct{ known, block, filesystem bool }

func checkPod(pod *corev1.Pod) []string {
	problems := checkPodSpec(pod)
	volumes := map[string]podVolume{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		at := fmt.Sprintf("spec.volumes[%d]", i)
		problems = append(problems, checkVolume(at, pod, volume)...)
		if volumes[volume.Name].known {
			problems = append(problems, fmt.Sprintf("%s.name: %q is there twice", at, volume.Name))
		}
		volumes[volume.Name] = modesOf(volume)
	}
	c := containers{pod: pod, volumes: volumes, names: map[string]bool{}}
	for i := range pod.Spec.InitContainers {
		problems = append(problems, c.check(fmt.Sprintf("spec.initContainers[%d]", i), &pod.Spec.InitContainers[i])...)
	}
	for i := range pod.Spec.Containers {
		problems = append(problems, c.check(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])...)
	}
	return problems
}

func checkPodSpec(pod *corev1.Pod) (problems []string) {
	if len(pod.Spec.Containers) == 0 {
		problems = append(problems, "spec.containers: at least one is needed")
	}
	problems = append(problems, oneOf("spec.restartPolicy", pod.Spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		problems = append(problems, fmt.Sprintf("spec.terminationGracePeriodSeconds: %d is below zero", *grace))
	}
	security := pod.Spec.SecurityContext
	if security == nil {
		return problems
	}
	if policy := security.FSGroupChangePolicy; policy != nil {
		problems = append(problems, oneOf("spec.securityContext.fsGroupChangePolicy", *policy, corev1.FSGroupChangeAlways,
			corev1.FSGroupChangeOnRootMismatch)...)
	}
	if policy := security.SELinuxChangePolicy; policy != nil {
		problems = append(problems, oneOf("spec.securityContext.seLinuxChangePolicy", *policy,
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
	}
	problems = append(problems, checkID("spec.securityContext.runAsUser", security.RunAsUser)...)
	problems = append(problems, checkID("spec.securityContext.runAsGroup", security.RunAsGroup)...)
	problems = append(problems, checkID("spec.securityContext.fsGroup", security.FSGroup)...)
	for i := range security.SupplementalGroups {
		problems = append(problems, checkID(fmt.Sprintf("spec.securityContext.supplementalGroups[%d]", i),
			&security.SupplementalGroups[i])...)
	}
	return problems
}

// checkID refuses a user or group that the API refuses.
func checkID(at string, id *int64) []string {
	if id == nil || (*id >= 0 && *id <= 1<<31-1) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d is not between 0 and 2147483647", at, *id)}
}

// modesOf returns the modes in which a volume can be used, as far as the pod defines them.
func modesOf(volume *corev1.Volume) podVolume {
	switch {
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		block := claim.IsBlock(volume.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode)
		return podVolume{known: true, block: block, filesystem: !block}
	case volume.PersistentVolumeClaim != nil:
		return podVolume{known: true, block: true, filesystem: true}
	}
	return podVolume{known: true, filesystem: true}
}

func checkVolume(at string, pod *corev1.Pod, volume *corev1.Volume) []string {
	var problems []string
	for _, problem := range validation.IsDNS1123Label(volume.Name) {
		problems = append(problems, at+".name: "+problem)
	}
	kinds := 0
	if source := volume.PersistentVolumeClaim; source != nil {
		kinds++
		if source.ClaimName == "" {
			problems = append(problems, at+".persistentVolumeClaim.claimName: is missing")
		} else {
			problems = append(problems, subdomain(at+".persistentVolumeClaim.claimName", source.ClaimName)...)
		}
	}
	if source := volume.CSI; source != nil {
		kinds++
		problems = append(problems, driverName(at+".csi.driver", source.Driver)...)
		if secret := source.NodePublishSecretRef; secret != nil {
			problems = append(problems, subdomain(at+".csi.nodePublishSecretRef.name", secret.Name)...)
		}
	}
	if volume.EmptyDir != nil {
		kinds++
	}
	for _, is := range []bool{volume.Secret != nil, volume.ConfigMap != nil, volume.Projected != nil} {
		if is {
			kinds++
		}
	}
	if source, found := podvalues.OfVolume(volume); found {
		problems = append(problems, checkVolumeOfValues(at, source)...)
	}
	if source := volume.Ephemeral; source != nil {
		kinds++
		problems = append(problems, checkEphemeral(at+".ephemeral", pod, volume)...)
	}
	switch {
	case kinds > 1:
		problems = append(problems, at+": names more than one kind of volume")
	case kinds == 0 && volume.VolumeSource == (corev1.VolumeSource{}): // another kind is refused by its field
		problems = append(problems, at+": names no kind of volume; supported are persistentVolumeClaim, csi, ephemeral, emptyDir, secret, configMap and projected")
	}
	return problems
}

func checkEphemeral(at string, pod *corev1.Pod, volume *corev1.Volume) []string {
	template := volume.Ephemeral.VolumeClaimTemplate
	if template == nil {
		return []string{at + ".volumeClaimTemplate: is missing"}
	}
	name := claim.EphemeralClaimName(pod.Name, volume.Name)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	problems := checkClaimSpec(at+".volumeClaimTemplate.spec", pvc)
	metadata := field.NewPath(at, "volumeClaimTemplate", "metadata")
	problems = append(problems, texts(metav1validation.ValidateLabels(template.Labels, metadata.Child("labels")))...)
	problems = append(problems, texts(apivalidation.ValidateAnnotations(template.Annotations,
		metadata.Child("annotations")))...)
	if pod.Name != "" {
		problems = append(problems, subdomain(fmt.Sprintf("%s: the claim's name %q", at, name), name)...)
	}
	return problems
}

// containers checks the containers of one pod.
type containers struct {
	pod     *corev1.Pod
	volumes map[string]podVolume
	names   map[string]bool
}

func (c containers) check(at string, container *corev1.Container) []string {
	var problems []string
	for _, problem := range validation.IsDNS1123Label(container.Name) {
		problems = append(problems, at+".name: "+problem)
	}
	if c.names[container.Name] {
		problems = append(problems, fmt.Sprintf("%s.name: %q is there twice", at, container.Name))
	}
	c.names[container.Name] = true
	if len(container.Command) == 0 && c.pod.Annotations[HolderAnnotation] == "" {
		problems = append(problems, at+".command: is needed on one machine, where the image, which may have one, is not used")
	}
	for i, variable := range container.Env {
		if variable.Name == "" {
			problems = append(problems, fmt.Sprintf("%s.env[%d].name: is missing", at, i))
		}
		if variable.Value != "" && variable.ValueFrom != nil {
			problems = append(problems, fmt.Sprintf("%s.env[%d]: has a value and a valueFrom", at, i))
		}
		if source := variable.ValueFrom; source != nil {
			problems = append(problems, checkValueFrom(fmt.Sprintf("%s.env[%d].valueFrom", at, i), source)...)
		}
		if source := variable.ValueFrom; source != nil && source.FieldRef != nil && !isServed(source.FieldRef.FieldPath) {
			problems = append(problems, fmt.Sprintf("%s.env[%d].valueFrom.fieldRef.fieldPath: %q is not supported on one machine", at, i, source.FieldRef.FieldPath))
		}
	}
	problems = append(problems, checkEnvFrom(at, container)...)
	if security := container.SecurityContext; security != nil {
		problems = append(problems, checkID(at+".securityContext.runAsUser", security.RunAsUser)...)
		problems = append(problems, checkID(at+".securityContext.runAsGroup", security.RunAsGroup)...)
	}
	return append(problems, c.checkPaths(at, container)...)
}

// isServed reports whether package workload has a value for a field of the pod.
func isServed(fieldPath string) bool {
	for _, stem := range []string{"metadata.labels['", "metadata.annotations['"} {
		if strings.HasPrefix(fieldPath, stem) {
			return strings.HasSuffix(fieldPath, "']")
		}
	}
	return slices.Contains([]string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.serviceAccountName"}, fieldPath)
}

func (c containers) checkPaths(at string, container *corev1.Container) (problems []string) {
	taken := map[string]bool{}
	check := func(field, name, target string) podVolume {
		volume := c.volumes[name]
		if !volume.known {
			problems = append(problems, fmt.Sprintf("%s: the pod has no volume %q", field, name))
		}
		switch clean := path.Clean(target); {
		case !path.IsAbs(target):
			problems = append(problems, fmt.Sprintf("%s: the path %q is not absolute", field, target))
		case clean == "/":
			problems = append(problems, fmt.Sprintf("%s: the root itself cannot be a mount path", field))
		case taken[clean]:
			problems = append(problems, fmt.Sprintf("%s: the path %q is taken", field, target))
		default:
			taken[clean] = true
		}
		return volume
	}
	for i, mount := range container.VolumeMounts {
		field := fmt.Sprintf("%s.volumeMounts[%d]", at, i)
		if volume := check(field, mount.Name, mount.MountPath); volume.known && !volume.filesystem {
			problems = append(problems, fmt.Sprintf("%s: volume %q is a block device (volumeMode: Block); use volumeDevices",
				field, mount.Name))
		}
		if sub := mount.SubPath; sub != "" && (path.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..")) {
			problems = append(problems, fmt.Sprintf("%s.subPath: %q leads out of the volume", field, sub))
		}
	}
	for i, device := range container.VolumeDevices {
		field := fmt.Sprintf("%s.volumeDevices[%d]", at, i)
		if volume := check(field, device.Name, device.DevicePath); volume.known && !volume.block {
			problems = append(problems, fmt.Sprintf("%s: volume %q is a filesystem; use volumeMounts", field, device.Name))
		}
	}
	return problems
}
