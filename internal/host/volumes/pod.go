package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Mounted is a volume that is mounted for a pod: a directory, or a block device
// node.
type Mounted struct {
	Path     string
	Block    bool
	ReadOnly bool
}

// MountPod mounts a pod's volumes in parallel and returns them by their names in the
// pod. It leaves out volumes that no container uses, and calls no driver for those
// that are mounted. After an error some may be mounted: the caller repeats MountPod,
// or calls UnmountPod if the pod is not desired any more. The error is an ErrWaiting
// if nothing failed.
func (m *Manager) MountPod(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
	m = m.as(ctx)
	ctx, end := m.mountSpan(ctx, pod)
	var (
		mu       sync.Mutex
		group    sync.WaitGroup
		mounted  = map[string]Mounted{}
		failures []error
	)
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if _, values := podvalues.OfVolume(volume); values || !isUsed(pod, volume.Name) { // package workload mounts values
			continue
		}
		group.Go(func() {
			one, err := m.mountVolume(ctx, pod, volume)
			mu.Lock()
			defer mu.Unlock()
			mounted[volume.Name] = one
			failures = append(failures, err)
		})
	}
	group.Wait()
	err := gather(failures)
	end(err)
	return mounted, err
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
	if volume.EmptyDir != nil {
		return m.makeEmptyDir(pod, volume)
	}
	toMount, err := m.resolveVolume(pod, volume)
	if err != nil {
		return Mounted{}, fmt.Errorf("volume %q: %w", volume.Name, err)
	}
	if err := m.mount(ctx, toMount); err != nil {
		return Mounted{}, err
	}
	mounted := Mounted{Path: toMount.target, Block: toMount.use.Block, ReadOnly: readOnlyFor(volume)}
	if toMount.claim == "" {
		return mounted, nil
	}
	return mounted, m.growNode(ctx, toMount.claim, pod.UID)
}

// resolveVolume reads the claim or the inline volume behind a volume of a pod.
func (m *Manager) resolveVolume(pod *corev1.Pod, volume *corev1.Volume) (volumeToMount, error) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return m.resolveClaim(pod, volume, volume.PersistentVolumeClaim.ClaimName)
	case volume.Ephemeral != nil:
		return m.resolveClaim(pod, volume, claim.EphemeralClaimName(pod.Name, volume.Name))
	case volume.CSI != nil:
		return m.resolveInline(pod, volume), nil
	}
	return volumeToMount{}, errors.New("this kind of volume is not supported")
}

func readOnlyFor(volume *corev1.Volume) bool {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ReadOnly
	case volume.CSI != nil:
		return volume.CSI.ReadOnly != nil && *volume.CSI.ReadOnly
	}
	return false
}

func (m *Manager) resolveClaim(pod *corev1.Pod, volume *corev1.Volume, name string) (volumeToMount, error) {
	key := store.Key(pod.Namespace, name)
	found, err := m.boundClaim(key)
	switch {
	case errors.Is(err, ErrNoClaim):
		on := []journal.Ref{{Kind: "PersistentVolumeClaim", Key: key}}
		return volumeToMount{}, &Waiting{On: on, text: err.Error(), causes: []error{err}}
	case err != nil:
		return volumeToMount{}, err
	}
	use, err := m.claimUse(pod, volume, key, found)
	if err != nil {
		return volumeToMount{}, err
	}
	return volumeToMount{
		label: claimLabel(key), pod: pod, use: use, target: m.target(pod.UID, use), volumeName: volume.Name,
		readOnly: everywhereReadOnly(pod, name), modes: found.volume.Spec.AccessModes,
		claim: key, volume: found.volume, secrets: secretsOf(found.volume.Spec.CSI),
	}, nil
}

// claimUse checks whether a pod may use a claim, and returns the use of its volume. A pod
// that has the volume keeps it when the claim is being deleted.
func (m *Manager) claimUse(
	pod *corev1.Pod, volume *corev1.Volume, key string, found bound,
) (*store.VolumeUse, error) {
	pvc, pv := found.claim, found.volume
	if volume.Ephemeral != nil && !claim.OwnsEphemeralClaim(pod, pvc) {
		return nil, fmt.Errorf("%s was not made for this pod: delete it, or rename the pod or the volume",
			claim.Describe(pvc))
	}
	if pv == nil || pv.Spec.CSI == nil {
		return nil, waitingFor("PersistentVolumeClaim", key, "%s has no volume", claim.Describe(pvc))
	}
	if ref := pv.Spec.ClaimRef; ref != nil && ref.UID != "" && ref.UID != pvc.UID {
		return nil, waitingFor("PersistentVolumeClaim", key,
			"%s: PersistentVolume %s belongs to another claim of that name", claim.Describe(pvc), pv.Name)
	}
	use := newUse(pv)
	if err := fitsMode(pod, volume.Name, use.Block); err != nil {
		return nil, err
	}
	if pvc.DeletionTimestamp == nil {
		return use, nil
	}
	known, err := m.useNamed(use.Name)
	if err != nil {
		return nil, err
	}
	if known == nil || known.Targets[m.target(pod.UID, use)].Phase == store.PhaseNone {
		return nil, waitingFor("PersistentVolumeClaim", key, "%s is being deleted", claim.Describe(pvc))
	}
	return use, nil
}

// fitsMode returns an error if a container uses a device as a directory, or a directory
// as a device: the claim was made again with another mode.
func fitsMode(pod *corev1.Pod, volume string, block bool) error {
	mode, has, wants := corev1.PersistentVolumeFilesystem, "volumeDevices", "volumeMounts"
	if block {
		mode, has, wants = corev1.PersistentVolumeBlock, wants, has
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		mounts := slices.ContainsFunc(container.VolumeMounts, func(v corev1.VolumeMount) bool { return v.Name == volume })
		devices := slices.ContainsFunc(container.VolumeDevices, func(v corev1.VolumeDevice) bool { return v.Name == volume })
		if block && mounts || !block && devices {
			return fmt.Errorf("%w: container %s has it in %s, and its claim has volumeMode %s: delete the pod and create it with %s, "+
				"or release the hold and hold the claim again", errLocal, container.Name, has, mode, wants)
		}
	}
	return nil
}

// everywhereReadOnly reports whether all volumes of a pod that name a claim are
// read-only: they share one mount.
func everywhereReadOnly(pod *corev1.Pod, name string) bool {
	readOnly := true
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		switch {
		case volume.PersistentVolumeClaim != nil:
			if volume.PersistentVolumeClaim.ClaimName == name && isUsed(pod, volume.Name) {
				readOnly = readOnly && volume.PersistentVolumeClaim.ReadOnly
			}
		case volume.Ephemeral != nil && claim.EphemeralClaimName(pod.Name, volume.Name) == name:
			readOnly = false
		}
	}
	return readOnly
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

func (m *Manager) resolveInline(pod *corev1.Pod, volume *corev1.Volume) volumeToMount {
	use := inlineUse(pod, volume)
	made := volumeToMount{
		label: inlineLabel(volume.Name), pod: pod, use: use, readOnly: readOnlyFor(volume),
		target: m.target(pod.UID, use), volumeName: volume.Name,
	}
	if ref := volume.CSI.NodePublishSecretRef; ref != nil {
		// Never from another namespace: the pod's author must be allowed to read it.
		made.secrets.publish = &corev1.SecretReference{Name: ref.Name, Namespace: pod.Namespace}
	}
	return made
}

func inlineLabel(name string) string { return "inline volume " + name }

func fsType(named *string) string {
	if named == nil {
		return ""
	}
	return *named
}

// target is the path at which a volume is published for a pod.
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
	// Any user of the pod may write, as on a cluster; the umask must not apply.
	if err := os.Chmod(path, 0o777); err != nil {
		return Mounted{}, fmt.Errorf("volume %q: %w", volume.Name, err)
	}
	return Mounted{Path: path}, nil
}

// UnmountPod unmounts a pod's volumes in parallel and removes the pod's directory. Steps
// that cannot be undone now stay recorded, for the next call or the next start.
func (m *Manager) UnmountPod(ctx context.Context, pod *corev1.Pod) error {
	m = m.as(ctx)
	m.forgetMount(pod.UID)
	if err := m.unmountFor(ctx, pod.UID); err != nil {
		return err
	}
	return m.removePodDirectory(pod.UID)
}

// unmountFor undoes the uses of a pod, and those of which it was the last user.
func (m *Manager) unmountFor(ctx context.Context, uid types.UID) error {
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
		if usedBy(use, uid) {
			work = append(work, func() error {
				return m.unmount(ctx, use.Name, func(t store.Target) bool { return t.PodUID == uid })
			})
		}
	}
	return atOnce(work)
}

func usedBy(use *store.VolumeUse, pod types.UID) bool {
	if len(use.Targets) == 0 {
		return use.LastPod == pod
	}
	for _, target := range use.Targets {
		if target.PodUID == pod {
			return true
		}
	}
	return false
}

// atOnce does everything in parallel and returns all the errors.
func atOnce(work []func() error) error {
	var (
		mu     sync.Mutex
		failed []error
		group  sync.WaitGroup
	)
	for _, do := range work {
		group.Go(func() {
			if err := do(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}
