package volumes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Mounted is a volume of a pod that is in place: a directory, or a block
// device node.
type Mounted struct {
	Path     string
	Block    bool
	ReadOnly bool
}

// MountPod brings a pod's volumes to it, all at once, and returns them by their
// names in the pod. Volumes that no container uses are left out. After an error
// the caller calls UnmountPod: some may be in place.
func (m *Manager) MountPod(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
	if err := m.recordPod(pod); err != nil {
		return nil, err
	}
	var (
		mu      sync.Mutex
		mounted = map[string]Mounted{}
		work    []func() error
	)
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !isUsed(pod, volume.Name) {
			continue
		}
		work = append(work, func() error {
			place, err := m.mountVolume(ctx, pod, volume)
			mu.Lock()
			defer mu.Unlock()
			mounted[volume.Name] = place
			return err
		})
	}
	return mounted, atOnce(work)
}

// recordPod lets a later run find what this one did. Of a daemon, whose steps
// are single attempts, the pod controller owns the Pod objects.
func (m *Manager) recordPod(pod *corev1.Pod) error {
	if m.options.Patience == OneAttempt {
		return nil
	}
	return m.update(func(tx *store.Tx) error { return tx.Pods().Put(store.Key(pod.Namespace, pod.Name), pod) })
}

func isUsed(pod *corev1.Pod, volume string) bool {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, mount := range container.VolumeMounts {
			if mount.Name == volume {
				return true
			}
		}
		for _, device := range container.VolumeDevices {
			if device.Name == volume {
				return true
			}
		}
	}
	return false
}

func (m *Manager) mountVolume(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (Mounted, error) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return m.mountClaim(ctx, pod, volume)
	case volume.CSI != nil:
		return m.mountInline(ctx, pod, volume)
	case volume.EmptyDir != nil:
		return m.makeEmptyDir(pod, volume)
	}
	return Mounted{}, fmt.Errorf("volume %q: this kind of volume is not supported", volume.Name)
}

func (m *Manager) mountClaim(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (Mounted, error) {
	source := volume.PersistentVolumeClaim
	key := store.Key(pod.Namespace, source.ClaimName)
	found, err := m.boundClaim(key)
	switch {
	case err != nil:
		return Mounted{}, fmt.Errorf("volume %q: %w", volume.Name, err)
	case found.claim.DeletionTimestamp != nil:
		return Mounted{}, fmt.Errorf("volume %q: %s is being deleted", volume.Name, claim.Describe(found.claim))
	case found.volume == nil:
		return Mounted{}, fmt.Errorf("volume %q: %s has no volume", volume.Name, claim.Describe(found.claim))
	}
	use := newUse(found.volume)
	job := job{
		label: claimLabel(key), pod: pod, use: use, readOnly: source.ReadOnly, modes: found.volume.Spec.AccessModes,
		target: m.target(pod.UID, use), volumeName: volume.Name,
	}
	if err := m.mount(ctx, job); err != nil {
		return Mounted{}, err
	}
	return Mounted{Path: job.target, Block: use.Block, ReadOnly: source.ReadOnly},
		m.growPublished(ctx, key, job.label, use, job.target)
}

func newUse(volume *corev1.PersistentVolume) *store.VolumeUse {
	source := volume.Spec.CSI
	return &store.VolumeUse{
		Name: claim.UniqueName(source.Driver, source.VolumeHandle), SpecName: volume.Name,
		Driver: source.Driver, Handle: source.VolumeHandle, Block: claim.IsBlock(volume.Spec.VolumeMode),
		FSType: source.FSType, MountFlags: volume.Spec.MountOptions, Modes: volume.Spec.AccessModes,
		Attributes: source.VolumeAttributes,
	}
}

func (m *Manager) mountInline(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (Mounted, error) {
	source := volume.CSI
	object, err := m.csiDriver(source.Driver)
	if err != nil {
		return Mounted{}, err
	}
	if !claim.HasLifecycle(object, storagev1.VolumeLifecycleEphemeral) {
		return Mounted{}, fmt.Errorf("volume %q: driver %s has no CSIDriver object whose volumeLifecycleModes list Ephemeral, so it serves no inline volumes",
			volume.Name, source.Driver)
	}
	use := inlineUse(pod, volume)
	readOnly := source.ReadOnly != nil && *source.ReadOnly
	job := job{
		label: inlineLabel(volume.Name), pod: pod, use: use, readOnly: readOnly,
		target: m.target(pod.UID, use), volumeName: volume.Name,
	}
	return Mounted{Path: job.target, ReadOnly: readOnly}, m.mount(ctx, job)
}

func inlineLabel(name string) string { return "inline volume " + name }

func fsType(named *string) string {
	if named == nil {
		return ""
	}
	return *named
}

// target is where a use is published for a pod.
func (m *Manager) target(pod types.UID, use *store.VolumeUse) string {
	if use.Block {
		return m.options.Paths.BlockPublish(use.SpecName, pod)
	}
	return m.options.Paths.Publish(pod, use.SpecName)
}

func (m *Manager) makeEmptyDir(pod *corev1.Pod, volume *corev1.Volume) (Mounted, error) {
	path := m.options.Paths.EmptyDir(pod.UID, volume.Name)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return Mounted{}, fmt.Errorf("volume %q: %w", volume.Name, err)
	}
	// Any user of the pod may write, as on a cluster; umask must not matter.
	if err := os.Chmod(path, 0o777); err != nil {
		return Mounted{}, fmt.Errorf("volume %q: %w", volume.Name, err)
	}
	return Mounted{Path: path}, nil
}

// UnmountPod takes a pod's volumes away, all at once, and forgets the pod. What
// cannot be undone now stays recorded, and the next start goes on with it.
func (m *Manager) UnmountPod(ctx context.Context, pod *corev1.Pod) error {
	var uses []*store.VolumeUse
	err := m.view(func(tx *store.Tx) (err error) {
		uses, err = tx.Uses().All()
		return err
	})
	if err != nil {
		return err
	}
	var work []func() error
	for _, use := range uses {
		if usedBy(use, pod.UID) {
			work = append(work, func() error {
				return m.unmount(ctx, use.Name, func(t store.Target) bool { return t.PodUID == pod.UID })
			})
		}
	}
	if err := atOnce(work); err != nil {
		return err
	}
	return m.forgetPod(pod)
}

func usedBy(use *store.VolumeUse, pod types.UID) bool {
	for _, target := range use.Targets {
		if target.PodUID == pod {
			return true
		}
	}
	return false
}

// forgetPod removes the pod's directory and its record. A record of the same
// name that belongs to a later pod stays.
func (m *Manager) forgetPod(pod *corev1.Pod) error {
	if err := m.removePodDirectory(pod.UID); err != nil {
		return err
	}
	if m.options.Patience == OneAttempt {
		return nil // see recordPod
	}
	key := store.Key(pod.Namespace, pod.Name)
	return m.update(func(tx *store.Tx) error {
		current, err := tx.Pods().Get(key)
		if err != nil || current == nil || current.UID != pod.UID {
			return err
		}
		return tx.Pods().Delete(key)
	})
}
