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

// job is one volume to be brought to one pod.
type job struct {
	label      string
	pod        *corev1.Pod
	volumeName string
	use        *store.VolumeUse
	target     string
	readOnly   bool
	modes      []corev1.PersistentVolumeAccessMode
	// claim and volume are what a claim has; "" and nil for an inline volume.
	claim   string
	volume  *corev1.PersistentVolume
	secrets secretRefs
	// selinux is the label that the volume is mounted with.
	selinux string
}

func (j job) podRef() journal.Ref {
	return journal.Ref{Kind: "Pod", Key: store.Key(j.pod.Namespace, j.pod.Name), UID: string(j.pod.UID)}
}

func (j job) subject() subject {
	about := []journal.Ref{j.podRef()}
	if j.claim != "" {
		about = append(about, journal.Ref{Kind: "PersistentVolumeClaim", Key: j.claim})
	}
	return subject{label: j.label, about: about, driver: j.use.Driver, handle: j.use.Handle}
}

// mount attaches, stages and publishes a volume as far as that is not done yet.
// For one that is in place no driver is called.
func (m *Manager) mount(ctx context.Context, job job) error {
	unlock, err := m.lock(ctx, "volume "+job.use.Name)
	if err != nil {
		return err
	}
	defer unlock()
	object, err := m.csiDriver(job.use.Driver)
	if err != nil {
		return err
	}
	if job.selinux, err = m.selinuxLabel(object, job.pod, job.volumeName, job.use.Inline, job.use.Block); err != nil {
		return err
	}
	inPlace, err := m.resume(ctx, job)
	if err != nil || inPlace {
		return err
	}
	if err := m.mayUse(job, object); err != nil {
		return err
	}
	if err := m.meetDriver(ctx, job); err != nil {
		return err
	}
	if err := m.attach(ctx, job); err != nil {
		return err
	}
	if err := m.stage(ctx, job); err != nil {
		return err
	}
	return m.publish(ctx, job)
}

// meetDriver waits for the driver, and enters in the record for whom and as
// which node the volume is used.
func (m *Manager) meetDriver(ctx context.Context, job job) error {
	var driver *plugins.Driver
	err := ask(ctx, job.label, func(context.Context) (err error) {
		driver, err = m.options.Drivers.Driver(job.use.Driver)
		return err
	})
	if err != nil {
		return err
	}
	if err := m.fitsHere(job, driver); err != nil {
		return err
	}
	job.use.Label = job.label
	if job.use.Attach == store.PhaseNone || job.use.NodeID == "" { // or it would be detached from another node than it was attached to
		job.use.NodeID = driver.Node.ID
	}
	job.claimTarget()
	return m.reserve(job, driver)
}

// claimTarget enters the pod in the record that the first step writes: from
// then on, whatever was done for the pod is found and undone with it.
func (j job) claimTarget() {
	if j.use.Targets == nil {
		j.use.Targets = map[string]store.Target{}
	}
	if _, known := j.use.Targets[j.target]; known {
		return
	}
	j.use.Targets[j.target] = store.Target{
		PodUID: j.pod.UID, Pod: store.Key(j.pod.Namespace, j.pod.Name), VolumeName: j.volumeName, ReadOnly: j.readOnly,
	}
}

// resume continues from the record of the volume if it is in use already. It
// reports whether the volume is where the pod wants it. A use of an earlier boot
// that Adopt has not reset is undone first.
func (m *Manager) resume(ctx context.Context, job job) (inPlace bool, err error) {
	known, err := m.use(job.use.Name)
	if err != nil || known == nil {
		return false, err
	}
	if known.BootID != m.options.BootID {
		return false, m.unmountLocked(ctx, known, func(store.Target) bool { return true })
	}
	if err := mayShare(known, job); err != nil {
		return false, m.orFailure(err)
	}
	*job.use = *known
	target := known.Targets[job.target]
	if target.Phase != store.PhaseDone {
		return false, nil
	}
	there, err := isInPlace(job.target, known.Block, target.Device)
	if err != nil {
		return false, fmt.Errorf("%s: %w: %w", job.label, errLocal, err)
	}
	if !there {
		m.notice(job.podRef(), true, "VolumeNotMounted", "%s: it is not mounted any more at %s; it is published again", job.label, job.target)
	}
	return there, nil
}

// orFailure makes a failure of waiting for pods that are gone: what is left of
// them is being undone, and no change of an object will tell that it is.
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
func mayShare(known *store.VolumeUse, job job) error {
	for _, target := range known.Targets {
		if target.PodUID == job.pod.UID {
			continue
		}
		if slices.Equal(job.modes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
			return waitingFor("Pod", target.Pod, "%s: its access mode is ReadWriteOncePod, and pod %s uses it", job.label, target.Pod)
		}
		if known.Block != job.use.Block {
			return waitingFor("Pod", target.Pod, "%s: pod %s uses the volume in another volumeMode", job.label, target.Pod)
		}
	}
	return checkLabel(known, job)
}

func (m *Manager) use(name string) (use *store.VolumeUse, err error) {
	err = m.view(func(tx *store.Tx) error {
		use, err = tx.Uses().Get(name)
		return err
	})
	return use, err
}

// nodeCapability is the capability of the node calls for a job.
func (m *Manager) nodeCapability(ctx context.Context, job job) (*csi.VolumeCapability, error) {
	driver, err := m.options.Drivers.Driver(job.use.Driver)
	if err != nil {
		return nil, err
	}
	can, err := driver.Client.NodeCapabilities(ctx)
	if err != nil {
		return nil, err
	}
	use := job.use
	desired := claim.Use{Block: use.Block, FSType: use.FSType, MountFlags: withLabel(use.MountFlags, job.selinux)}
	if can.MountGroup && !use.Block {
		desired.MountGroup = mountGroup(job.pod)
	}
	return desired.NodeCapability(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, use.Modes)
}

func mountGroup(pod *corev1.Pod) string {
	if pod == nil || pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.FSGroup == nil {
		return ""
	}
	return fmt.Sprint(*pod.Spec.SecurityContext.FSGroup)
}

// transition writes the intent, makes the call, and writes its result. The
// record that follows a success is left to the next step's intent where there
// is one: done tells what it is.
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

func (m *Manager) notice(about journal.Ref, warning bool, reason, format string, arguments ...any) {
	m.options.Record(journal.Notice{About: about, Warning: warning, Reason: reason, Message: fmt.Sprintf(format, arguments...)})
}
