package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// protection keeps a claim until its volume is gone (the name is Kubernetes').
const protection = "kubernetes.io/pvc-protection"

// plan is what an apply is going to write, worked out and checked before
// anything is.
type plan struct {
	classes []*storagev1.StorageClass
	drivers []*storagev1.CSIDriver
	claims  []*corev1.PersistentVolumeClaim
	pods    []*corev1.Pod
	// needed are the drivers that have to be registered, with what needs each.
	needed map[string]string
}

func claimKey(pvc *corev1.PersistentVolumeClaim) string { return store.Key(pvc.Namespace, pvc.Name) }

// plan checks the objects against each other and against what the host has. It
// writes nothing.
func (h *Host) plan(objects *manifest.Objects) (plan, error) {
	result := plan{classes: objects.Classes, drivers: objects.Drivers, needed: map[string]string{}}
	err := h.store.View(func(tx *store.Tx) error {
		known, err := readState(tx, objects)
		if err != nil {
			return err
		}
		var problems []error
		for _, pvc := range objects.Claims {
			merged, err := known.mergeClaim(pvc)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			result.claims = append(result.claims, merged)
			known.claims[claimKey(merged)] = merged
		}
		problems = append(problems, known.checkSources(result.claims)...)
		for _, pod := range objects.Pods {
			pod.UID = uuid.NewUUID()
			problems = append(problems, known.checkPod(pod)...)
		}
		result.pods = objects.Pods
		known.needs(&result)
		return errors.Join(problems...)
	})
	return result, err
}

// state is what the host has, with what is given now on top of it.
type state struct {
	classes  map[string]*storagev1.StorageClass
	claims   map[string]*corev1.PersistentVolumeClaim
	volumes  map[string]*corev1.PersistentVolume
	creating map[string]bool // claims, by UID, that a creation is recorded for
}

func readState(tx *store.Tx, objects *manifest.Objects) (*state, error) {
	s := &state{
		classes: map[string]*storagev1.StorageClass{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		volumes: map[string]*corev1.PersistentVolume{}, creating: map[string]bool{},
	}
	classes, err := tx.Classes().All()
	if err != nil {
		return nil, err
	}
	claims, err := tx.Claims().All()
	if err != nil {
		return nil, err
	}
	volumes, err := tx.Volumes().All()
	if err != nil {
		return nil, err
	}
	records, err := tx.Provisionings().All()
	if err != nil {
		return nil, err
	}
	for _, class := range slices.Concat(classes, objects.Classes) {
		s.classes[class.Name] = class
	}
	for _, pvc := range claims {
		s.claims[claimKey(pvc)] = pvc
	}
	for _, volume := range volumes {
		s.volumes[volume.Name] = volume
	}
	for _, record := range records {
		s.creating[string(record.ClaimUID)] = true
	}
	return s, nil
}

// mergeClaim returns what is to be stored for a given claim: a new one, or the
// stored one with what may change.
func (s *state) mergeClaim(given *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if err := s.defaultClass(given); err != nil {
		return nil, err
	}
	given.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	given.Finalizers = []string{protection}
	given.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	given.UID = uuid.NewUUID()
	stored := s.claims[claimKey(given)]
	switch {
	case stored == nil:
		return given, nil
	case stored.DeletionTimestamp != nil:
		return nil, fmt.Errorf("%s is being deleted; delete it with --delete before it is made anew", claim.Describe(given))
	case stored.Spec.VolumeName == "" && !s.creating[string(stored.UID)]:
		given.UID, given.CreationTimestamp = stored.UID, stored.CreationTimestamp // nothing was made of it yet
		return given, nil
	}
	return changeClaim(stored, given)
}

// changeClaim lets labels, annotations and a growing request through.
func changeClaim(stored, given *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	merged := stored.DeepCopy()
	merged.Labels, merged.Annotations = given.Labels, given.Annotations
	wanted, has := given.Spec.Resources.Requests[corev1.ResourceStorage], stored.Spec.Resources.Requests[corev1.ResourceStorage]
	if wanted.Cmp(has) < 0 && wanted.Cmp(stored.Status.Capacity[corev1.ResourceStorage]) < 0 {
		return nil, fmt.Errorf("%s: spec.resources.requests.storage: a volume cannot shrink from %s to %s",
			claim.Describe(given), has.String(), wanted.String())
	}
	merged.Spec.Resources = given.Spec.Resources
	expected := given.Spec.DeepCopy()
	expected.VolumeName = merged.Spec.VolumeName
	if expected.VolumeMode == nil {
		expected.VolumeMode = merged.Spec.VolumeMode
	}
	for name, same := range map[string]bool{
		"accessModes":      equality.Semantic.DeepEqual(expected.AccessModes, merged.Spec.AccessModes),
		"volumeMode":       claim.IsBlock(expected.VolumeMode) == claim.IsBlock(merged.Spec.VolumeMode),
		"storageClassName": equality.Semantic.DeepEqual(expected.StorageClassName, merged.Spec.StorageClassName),
		"dataSource":       equality.Semantic.DeepEqual(expected.DataSource, merged.Spec.DataSource),
		"dataSourceRef":    equality.Semantic.DeepEqual(expected.DataSourceRef, merged.Spec.DataSourceRef),
	} {
		if !same {
			return nil, fmt.Errorf("%s: spec.%s: differs from the claim that exists, and cannot be changed; --delete removes that one with its data",
				claim.Describe(given), name)
		}
	}
	return merged, nil
}

func (s *state) defaultClass(pvc *corev1.PersistentVolumeClaim) error {
	if pvc.Spec.StorageClassName != nil {
		if s.classes[*pvc.Spec.StorageClassName] == nil && s.claims[claimKey(pvc)] == nil {
			return fmt.Errorf("%s: spec.storageClassName: there is no StorageClass %q%s", claim.Describe(pvc), *pvc.Spec.StorageClassName, s.listClasses())
		}
		return nil
	}
	if stored := s.claims[claimKey(pvc)]; stored != nil {
		pvc.Spec.StorageClassName = stored.Spec.StorageClassName
		return nil
	}
	var found []string
	for name, class := range s.classes {
		if manifest.IsDefault(class) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 1:
		pvc.Spec.StorageClassName = &found[0]
		return nil
	case 0:
		return fmt.Errorf("%s: spec.storageClassName: is missing, and no StorageClass is the default one: name one, or give one the annotation %s: \"true\"%s",
			claim.Describe(pvc), manifest.DefaultClassAnnotation, s.listClasses())
	}
	return fmt.Errorf("%s: spec.storageClassName: is missing, and several StorageClasses are the default one (%s): name one",
		claim.Describe(pvc), strings.Join(found, ", "))
}

func (s *state) listClasses() string {
	if len(s.classes) == 0 {
		return " (there is none)"
	}
	var names []string
	for name := range s.classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return " (there is " + strings.Join(names, ", ") + ")"
}

// checkSources refuses sources that do not exist and copies of copies in a circle.
func (s *state) checkSources(claims []*corev1.PersistentVolumeClaim) []error {
	var problems []error
	for _, pvc := range claims {
		seen := map[string]bool{}
		for current := pvc; current != nil && current.Spec.VolumeName == ""; {
			key := claimKey(current)
			if seen[key] {
				problems = append(problems, fmt.Errorf("%s: spec.dataSource: is a copy of itself, over %s", claim.Describe(pvc), key))
				break
			}
			seen[key] = true
			reference, err := claim.SourceOf(current)
			if err != nil || reference.Kind != claim.SourceClaim {
				break
			}
			next := s.claims[store.Key(current.Namespace, reference.Name)]
			if next == nil {
				problems = append(problems, fmt.Errorf("%s: spec.dataSource: there is no PersistentVolumeClaim %q",
					claim.Describe(current), store.Key(current.Namespace, reference.Name)))
			}
			current = next
		}
	}
	return problems
}

// checkPod refuses claims that do not exist and uses that do not fit the mode.
func (s *state) checkPod(pod *corev1.Pod) []error {
	var problems []error
	refuse := func(format string, arguments ...any) {
		problem := fmt.Errorf(format, arguments...)
		problems = append(problems, fmt.Errorf("%s %q: %w", "Pod", store.Key(pod.Namespace, pod.Name), problem))
	}
	blocks := map[string]bool{}
	for i, volume := range pod.Spec.Volumes {
		source := volume.PersistentVolumeClaim
		if source == nil {
			continue
		}
		key := store.Key(pod.Namespace, source.ClaimName)
		if pvc := s.claims[key]; pvc != nil {
			blocks[volume.Name] = claim.IsBlock(pvc.Spec.VolumeMode)
			continue
		}
		refuse("spec.volumes[%d].persistentVolumeClaim.claimName: there is no PersistentVolumeClaim %q", i, key)
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for i, mount := range container.VolumeMounts {
			if blocks[mount.Name] {
				refuse("container %q: volumeMounts[%d]: volume %q is a block device (volumeMode: Block); use volumeDevices", container.Name, i, mount.Name)
			}
		}
		for i, device := range container.VolumeDevices {
			if block, known := blocks[device.Name]; known && !block {
				refuse("container %q: volumeDevices[%d]: volume %q is a filesystem (volumeMode: Filesystem); use volumeMounts", container.Name, i, device.Name)
			}
		}
	}
	return problems
}

// needs collects the drivers: of claims that are given or used, and of inline volumes.
func (s *state) needs(p *plan) {
	add := func(pvc *corev1.PersistentVolumeClaim) {
		if pvc == nil {
			return
		}
		if volume := s.volumes[pvc.Spec.VolumeName]; volume != nil {
			p.needed[volume.Spec.CSI.Driver] = claim.Describe(pvc)
		} else if pvc.Spec.StorageClassName != nil && s.classes[*pvc.Spec.StorageClassName] != nil {
			class := s.classes[*pvc.Spec.StorageClassName]
			p.needed[class.Provisioner] = fmt.Sprintf("StorageClass %q: provisioner", class.Name)
		}
	}
	for _, pvc := range p.claims {
		add(pvc)
	}
	for _, pod := range p.pods {
		for i, volume := range pod.Spec.Volumes {
			switch {
			case volume.PersistentVolumeClaim != nil:
				add(s.claims[store.Key(pod.Namespace, volume.PersistentVolumeClaim.ClaimName)])
			case volume.CSI != nil:
				p.needed[volume.CSI.Driver] = fmt.Sprintf("Pod %q: spec.volumes[%d].csi.driver", store.Key(pod.Namespace, pod.Name), i)
			}
		}
	}
}

// write stores the plan in one transaction.
func (h *Host) write(p plan) error {
	return h.store.Update(func(tx *store.Tx) error {
		for _, class := range p.classes {
			if err := tx.Classes().Put(class.Name, class); err != nil {
				return err
			}
		}
		for _, driver := range p.drivers {
			if err := tx.Drivers().Put(driver.Name, driver); err != nil {
				return err
			}
		}
		for _, pvc := range p.claims {
			if err := tx.Claims().Put(claimKey(pvc), pvc); err != nil {
				return err
			}
		}
		return nil
	})
}

// forgetUnmade removes given claims that nothing was made of, after a failure:
// the next try may give them otherwise.
func (h *Host) forgetUnmade(p plan) error {
	return h.store.Update(func(tx *store.Tx) error {
		for _, pvc := range p.claims {
			stored, err := tx.Claims().Get(claimKey(pvc))
			if err != nil {
				return err
			}
			record, err := tx.Provisionings().Get(string(pvc.UID))
			if err != nil {
				return err
			}
			if stored == nil || stored.Spec.VolumeName != "" || record != nil {
				continue
			}
			if err := tx.Claims().Delete(claimKey(pvc)); err != nil {
				return err
			}
		}
		return nil
	})
}
