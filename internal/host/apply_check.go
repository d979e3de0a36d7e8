package host

import (
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// checkSource checks the source of a claim: it must exist, and must not lead back to
// the claim.
func (s *state) checkSource(pvc *corev1.PersistentVolumeClaim) []finding {
	seen := map[string]bool{}
	for current := pvc; current.Spec.VolumeName == ""; {
		key := claimKey(current)
		if seen[key] {
			return []finding{wrong("%s: spec.dataSource: is a copy of itself, over %s", claim.Describe(pvc), key)}
		}
		seen[key] = true
		reference, err := claim.SourceOf(current)
		if err != nil || reference.Kind == claim.SourceNone {
			return nil
		}
		source := reference.Key()
		if reference.Kind == claim.SourceSnapshot {
			if read(s, s.tx.Snapshots(), source) == nil {
				return []finding{waiting("%s: spec.dataSource: VolumeSnapshot %q does not exist", claim.Describe(current), source)}
			}
			return nil
		}
		next := s.claims.get(source)
		if next == nil {
			return []finding{waiting("%s: spec.dataSource: PersistentVolumeClaim %q does not exist",
				claim.Describe(current), source)}
		}
		current = next
	}
	return nil
}

// read is a table's record, nil if there is none.
func read[T any](s *state, table store.Table[T], key string) *T {
	return lookup[T]{table: table, err: &s.err}.get(key)
}

// checkClaimsOf inspects the claims that a pod uses: they must exist, and be of
// the mode in which its containers use them.
func (s *state) checkClaimsOf(pod *corev1.Pod) (findings []finding) {
	name := describePod(pod)
	blocks := map[string]bool{}
	for i, volume := range pod.Spec.Volumes {
		source := volume.PersistentVolumeClaim
		if source == nil {
			continue
		}
		key := store.Key(pod.Namespace, source.ClaimName)
		pvc := s.claims.get(key)
		switch {
		case pvc == nil:
			findings = append(findings, waiting("%s: spec.volumes[%d].persistentVolumeClaim.claimName: PersistentVolumeClaim %q does not exist", name, i, key))
			continue
		case pvc.DeletionTimestamp != nil:
			findings = append(findings, waiting("%s: spec.volumes[%d].persistentVolumeClaim.claimName: PersistentVolumeClaim %q is being deleted", name, i, key))
		}
		blocks[volume.Name] = claim.IsBlock(pvc.Spec.VolumeMode)
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for i, mount := range container.VolumeMounts {
			if blocks[mount.Name] {
				findings = append(findings, wrong("%s: container %q: volumeMounts[%d]: volume %q is a block device (volumeMode: Block); use volumeDevices", name, container.Name, i, mount.Name))
			}
		}
		for i, device := range container.VolumeDevices {
			if block, known := blocks[device.Name]; known && !block {
				findings = append(findings, wrong("%s: container %q: volumeDevices[%d]: volume %q is a filesystem (volumeMode: Filesystem); use volumeMounts", name, container.Name, i, device.Name))
			}
		}
	}
	return findings
}

func describePod(pod *corev1.Pod) string {
	return fmt.Sprintf("Pod %q", store.Key(pod.Namespace, pod.Name))
}

// checkVolumesOf inspects a pod's volumes other than claims.
func (s *state) checkVolumesOf(pod *corev1.Pod) (findings []finding) {
	for i, volume := range pod.Spec.Volumes {
		at := fmt.Sprintf("%s: spec.volumes[%d]", describePod(pod), i)
		if source := volume.CSI; source != nil {
			findings = append(findings, s.checkInline(at+".csi", pod, source)...)
		}
		if volume.Ephemeral != nil {
			key := store.Key(pod.Namespace, claim.EphemeralClaimName(pod.Name, volume.Name))
			if pvc := s.claims.get(key); pvc != nil && !claim.OwnsEphemeralClaim(pod, pvc) {
				findings = append(findings, waiting("%s.ephemeral: PersistentVolumeClaim %q exists and is not this pod's; it is not touched", at, key))
			}
		}
	}
	for _, reference := range podvalues.Of(pod) {
		key := store.Key(pod.Namespace, reference.Name)
		if !reference.Optional && !s.hasValues(reference.Kind, key) {
			findings = append(findings, waiting("%s: %s %q does not exist; its containers refer to it",
				describePod(pod), reference.Kind, key))
		}
	}
	return findings
}

// hasValues reports whether a Secret or a ConfigMap exists.
func (s *state) hasValues(kind, key string) bool {
	if kind == podvalues.ConfigMap {
		return read(s, s.tx.ConfigMaps(), key) != nil
	}
	return read(s, s.tx.Secrets(), key) != nil
}

func (s *state) checkInline(at string, pod *corev1.Pod, source *corev1.CSIVolumeSource) (findings []finding) {
	driver := read(s, s.tx.Drivers(), source.Driver)
	switch {
	case driver == nil:
		findings = append(findings, waiting("%s.driver: CSIDriver %q does not exist; it would allow inline volumes",
			at, source.Driver))
	case !claim.HasLifecycle(driver, storagev1.VolumeLifecycleEphemeral):
		findings = append(findings, waiting("%s.driver: CSIDriver %q does not list Ephemeral in spec.volumeLifecycleModes",
			at, source.Driver))
	}
	if secret := source.NodePublishSecretRef; secret != nil {
		key := store.Key(pod.Namespace, secret.Name)
		if read(s, s.tx.Secrets(), key) == nil {
			findings = append(findings, waiting("%s.nodePublishSecretRef: Secret %q does not exist", at, key))
		}
	}
	return findings
}

// checkClaim inspects everything that a claim refers to.
func (s *state) checkClaim(pvc *corev1.PersistentVolumeClaim) (findings []finding) {
	if pvc.Spec.VolumeName == "" {
		if found := s.chooseClass(pvc); found != nil {
			findings = append(findings, *found)
		}
	} else if s.volumes.get(pvc.Spec.VolumeName) == nil {
		findings = append(findings, waiting("%s: spec.volumeName: PersistentVolume %q does not exist", claim.Describe(pvc),
			pvc.Spec.VolumeName))
	}
	if name := pvc.Spec.VolumeAttributesClassName; name != nil && *name != "" &&
		read(s, s.tx.AttributesClasses(), *name) == nil {
		findings = append(findings, waiting("%s: spec.volumeAttributesClassName: VolumeAttributesClass %q does not exist",
			claim.Describe(pvc), *name))
	}
	return append(findings, s.checkSource(pvc)...)
}

// checkSnapshot inspects everything that a snapshot refers to.
func (s *state) checkSnapshot(snapshot *snapshotv1.VolumeSnapshot) (findings []finding) {
	name := fmt.Sprintf("VolumeSnapshot %q", store.KeyOf(snapshot))
	source := snapshot.Spec.Source
	if source.PersistentVolumeClaimName != nil {
		key := store.Key(snapshot.Namespace, *source.PersistentVolumeClaimName)
		if s.claims.get(key) == nil {
			findings = append(findings, waiting("%s: spec.source.persistentVolumeClaimName: PersistentVolumeClaim %q does not exist", name, key))
		}
	}
	if content := source.VolumeSnapshotContentName; content != nil && read(s, s.tx.SnapshotContents(), *content) == nil {
		findings = append(findings, waiting("%s: spec.source.volumeSnapshotContentName: VolumeSnapshotContent %q does not exist", name, *content))
	}
	if class := snapshot.Spec.VolumeSnapshotClassName; class != nil && read(s, s.tx.SnapshotClasses(), *class) == nil {
		findings = append(findings, waiting("%s: spec.volumeSnapshotClassName: VolumeSnapshotClass %q does not exist", name, *class))
	}
	return findings
}

// check checks an object together with the others.
func (s *state) check(object store.Object) []finding {
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return s.checkClaim(object)
	case *snapshotv1.VolumeSnapshot:
		return s.checkSnapshot(object)
	case *corev1.Pod:
		return append(s.checkClaimsOf(object), s.checkVolumesOf(object)...)
	}
	return nil
}
