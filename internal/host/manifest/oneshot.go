package manifest

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// restartPolicy is the policy that a pod's document sets, if it asks for more
// than one run.
func restartPolicy(object store.Object) string {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.RestartPolicy == "" || pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return ""
	}
	return fmt.Sprintf("spec.restartPolicy (%s)", pod.Spec.RestartPolicy)
}

// ForRun refuses what only a host that continues running can do, and reports what
// has no meaning for one run of each pod.
func (o *Objects) ForRun() error {
	var problems []error
	for _, given := range o.All {
		for _, problem := range needsHost(given.Object) {
			problems = append(problems, fmt.Errorf("%s: %s: %s needs a permanent host: start `holdfast host` and use `holdfast apply`",
				given.Where, given.Name(), problem))
		}
	}
	o.Unused = append(o.Unused, o.restarts...)
	o.restarts = nil
	return errors.Join(problems...)
}

func needsHost(object store.Object) (fields []string) {
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return claimNeedsHost(object)
	case *corev1.Pod:
		for i, volume := range object.Spec.Volumes {
			if volume.Ephemeral != nil {
				fields = append(fields, fmt.Sprintf("spec.volumes[%d].ephemeral", i))
			}
		}
		return fields
	}
	oneShot := []string{"Namespace", "Secret", "ConfigMap", "CSIDriver", "StorageClass"}
	if kind := object.GetObjectKind().GroupVersionKind().Kind; !slices.Contains(oneShot, kind) {
		return []string{"this kind"}
	}
	return nil
}

func claimNeedsHost(pvc *corev1.PersistentVolumeClaim) (fields []string) {
	if pvc.Spec.Selector != nil {
		fields = append(fields, "spec.selector")
	}
	if pvc.Spec.VolumeName != "" {
		fields = append(fields, "spec.volumeName")
	}
	if name := pvc.Spec.StorageClassName; name != nil && *name == "" {
		fields = append(fields, `spec.storageClassName: ""`)
	}
	if name := pvc.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		fields = append(fields, "spec.volumeAttributesClassName")
	}
	if reference, err := claim.SourceOf(pvc); err == nil && reference.Kind == claim.SourceSnapshot {
		fields = append(fields, "spec.dataSource (VolumeSnapshot)")
	}
	return fields
}
