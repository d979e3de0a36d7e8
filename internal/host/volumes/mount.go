package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// volumeToMount is one volume that a pod needs, with the arguments for its driver.
type volumeToMount struct {
	label      string
	pod        *corev1.Pod
	volumeName string
	use        *store.VolumeUse
	target     string
	readOnly   bool
	modes      []corev1.PersistentVolumeAccessMode
	// claim is the key of the claim, and volume its PersistentVolume; "" and nil for an
	// inline volume.
	claim   string
	volume  *corev1.PersistentVolume
	secrets secretRefs
	// selinux is the label with which the volume is mounted.
	selinux string
}

func (toMount volumeToMount) podRef() journal.Ref {
	return journal.Ref{Kind: "Pod", Key: store.Key(toMount.pod.Namespace, toMount.pod.Name), UID: string(toMount.pod.UID)}
}

func (toMount volumeToMount) subject() subject {
	about := []journal.Ref{toMount.podRef()}
	if toMount.claim != "" {
		about = append(about, journal.Ref{Kind: "PersistentVolumeClaim", Key: toMount.claim})
	}
	return subject{label: toMount.label, about: about, driver: toMount.use.Driver, handle: toMount.use.Handle}
}

// mount attaches, stages and publishes a volume, without the steps that are done. It
// does not call the driver for a volume that is mounted.
func (m *Manager) mount(ctx context.Context, toMount volumeToMount) error {
	unlock, err := m.lock(ctx, "volume "+toMount.use.Name)
	if err != nil {
		return err
	}
	defer unlock()
	object, err := m.driverOf(toMount.use.Driver)
	if err != nil {
		return err
	}
	use := toMount.use
	toMount.selinux, err = m.selinuxLabel(object, toMount.pod, toMount.volumeName, use.Inline, use.Block)
	if err != nil {
		return err
	}
	inPlace, err := m.resume(ctx, toMount)
	if err != nil || inPlace {
		return err
	}
	if err := m.mayUse(toMount, object); err != nil {
		return err
	}
	if err := m.awaitDriver(ctx, toMount); err != nil {
		return err
	}
	if err := m.attach(ctx, toMount); err != nil {
		return err
	}
	if err := m.stage(ctx, toMount); err != nil {
		return err
	}
	return m.publish(ctx, toMount)
}

// awaitDriver waits for the driver, and enters the pod and the driver's node ID in
// the record of the volume.
func (m *Manager) awaitDriver(ctx context.Context, toMount volumeToMount) error {
	var driver *plugins.Driver
	err := ask(ctx, toMount.label, func(context.Context) (err error) {
		driver, err = m.options.Drivers.Driver(toMount.use.Driver)
		return err
	})
	if err != nil {
		return err
	}
	if err := m.fitsHere(toMount, driver); err != nil {
		return err
	}
	toMount.use.Label = toMount.label
	// An attached volume keeps its node ID, or it would be detached from another node.
	if toMount.use.Attach == store.PhaseNone || toMount.use.NodeID == "" {
		toMount.use.NodeID = driver.Node.ID
	}
	toMount.claimTarget()
	return m.reserve(toMount, driver)
}

// claimTarget enters the pod in the record that the first step writes, so that every
// later step for the pod is found and undone when the pod is deleted.
func (toMount volumeToMount) claimTarget() {
	if toMount.use.Targets == nil {
		toMount.use.Targets = map[string]store.Target{}
	}
	if _, known := toMount.use.Targets[toMount.target]; known {
		return
	}
	toMount.use.Targets[toMount.target] = store.Target{
		PodUID: toMount.pod.UID, Pod: store.Key(toMount.pod.Namespace, toMount.pod.Name),
		VolumeName: toMount.volumeName, ReadOnly: toMount.readOnly,
		OncePod: isOncePod(toMount.modes),
	}
}

// resume continues from the record of the volume if it is in use already. It
// reports whether the volume is mounted for the pod. A use of an earlier boot
// that Adopt has not reset is undone first.
func (m *Manager) resume(ctx context.Context, toMount volumeToMount) (inPlace bool, err error) {
	known, err := m.useNamed(toMount.use.Name)
	if err != nil || known == nil {
		return false, err
	}
	if known.BootID != m.options.BootID {
		return false, m.unmountLocked(ctx, known, func(store.Target) bool { return true })
	}
	if err := mayShare(known, toMount); err != nil {
		return false, m.orFailure(err)
	}
	*toMount.use = *known
	target := known.Targets[toMount.target]
	if target.Phase != store.PhaseDone {
		return false, nil
	}
	there, err := m.isInPlace(toMount.target, known.Block, target.Device)
	if err != nil {
		return false, fmt.Errorf("%s: %w: %w", toMount.label, errLocal, err)
	}
	if !there {
		m.recordEventf(toMount.podRef(), true, "VolumeNotMounted",
			"%s: it is not mounted any more at %s; it is published again", toMount.label, toMount.target)
	}
	return there, nil
}

// orFailure turns a wait for pods that do not exist any more into a failure, which is
// retried: their volumes are still being unmounted, and no change of an object reports
// the end of that.
func (m *Manager) orFailure(err error) error {
	var waits *Waiting
	if !errors.As(err, &waits) {
		return err
	}
	there := false
	failed := m.view(func(tx *store.Tx) error {
		for _, on := range waits.On {
			pod, err := tx.Pods().Get(on.Key)
			if err != nil {
				return err
			}
			there = there || pod != nil
		}
		return nil
	})
	if failed != nil || there {
		return errors.Join(err, failed)
	}
	return errors.New(waits.text + "; that pod is gone, and its volume is still being taken away")
}

// mayShare reports whether a pod may use a volume together with those that use it.
func mayShare(known *store.VolumeUse, toMount volumeToMount) error {
	for _, target := range known.Targets {
		if target.PodUID == toMount.pod.UID {
			continue
		}
		// Several PersistentVolumes can name one volume: the mode of each of them counts.
		// known.Modes are those of the first, and of targets without a mode of their own.
		if isOncePod(toMount.modes) || isOncePod(known.Modes) || target.OncePod {
			return waitingFor("Pod", target.Pod,
				"%s: its access mode is ReadWriteOncePod, and pod %s uses it", toMount.label, target.Pod)
		}
		if known.Block != toMount.use.Block {
			return waitingFor("Pod", target.Pod,
				"%s: pod %s uses the volume in another volumeMode", toMount.label, target.Pod)
		}
	}
	return checkLabel(known, toMount)
}

func isOncePod(modes []corev1.PersistentVolumeAccessMode) bool {
	return slices.Equal(modes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod})
}

// nodeCapability is the capability of the node calls for a volume of a pod.
func (m *Manager) nodeCapability(ctx context.Context, toMount volumeToMount) (*csi.VolumeCapability, error) {
	driver, err := m.options.Drivers.Driver(toMount.use.Driver)
	if err != nil {
		return nil, err
	}
	can, err := driver.Client.NodeCapabilities(ctx)
	if err != nil {
		return nil, err
	}
	use := toMount.use
	desired := claim.Use{Block: use.Block, FSType: use.FSType, MountFlags: withLabel(use.MountFlags, toMount.selinux)}
	if can.MountGroup && !use.Block {
		desired.MountGroup = mountGroup(toMount.pod)
	}
	return desired.NodeCapability(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, use.Modes)
}

func mountGroup(pod *corev1.Pod) string {
	if pod == nil || pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.FSGroup == nil {
		return ""
	}
	return fmt.Sprint(*pod.Spec.SecurityContext.FSGroup)
}

// transition writes the intent, makes the call, and records its result. done
// enters a success in use; the next step's intent or the caller writes it.
func (m *Manager) transition(use *store.VolumeUse, name string, call claim.Call, do func() error, done func()) error {
	if err := m.saveUse(use); err != nil {
		return err
	}
	if err := m.hit(name + "/intent"); err != nil {
		return err
	}
	if err := do(); err != nil {
		note(&use.Trouble, call, err)
		return errors.Join(err, m.saveUse(use))
	}
	if err := m.hit(name + "/called"); err != nil {
		return err
	}
	note(&use.Trouble, call, nil)
	done()
	return nil
}

func (m *Manager) recordEventf(about journal.Ref, warning bool, reason, format string, arguments ...any) {
	m.options.Record(journal.Notice{
		About: about, Warning: warning, Reason: reason, Message: fmt.Sprintf(format, arguments...),
	})
}
