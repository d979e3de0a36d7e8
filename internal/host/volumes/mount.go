package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
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
}

// mount attaches, stages and publishes a volume as far as that is not done yet.
func (m *Manager) mount(ctx context.Context, job job) error {
	unlock, err := m.lock(ctx, "volume "+job.use.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.adopt(ctx, job); err != nil {
		return err
	}
	err = m.ask(ctx, job.label, func(context.Context) error {
		driver, err := m.options.Drivers.Driver(job.use.Driver)
		if err == nil {
			job.use.NodeID, job.use.Label = driver.Node.ID, job.label
		}
		return err
	})
	if err != nil {
		return err
	}
	job.claimTarget()
	if err := m.attach(ctx, job); err != nil {
		return err
	}
	if err := m.stage(ctx, job); err != nil {
		return err
	}
	if err := m.publish(ctx, job); err != nil {
		return err
	}
	return m.setOwnership(ctx, job)
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

// adopt goes on from the record of the volume if it is in use already, by
// another pod of this run. What is left of an earlier boot is undone first.
func (m *Manager) adopt(ctx context.Context, job job) error {
	known, err := m.use(job.use.Name)
	if err != nil || known == nil {
		return err
	}
	if known.BootID != m.options.BootID {
		return m.unmountLocked(ctx, known, func(store.Target) bool { return true })
	}
	if slices.Equal(job.modes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
		for _, target := range known.Targets {
			if target.PodUID != job.pod.UID {
				return fmt.Errorf("%s: its access mode is ReadWriteOncePod, and pod %s uses it", job.label, target.Pod)
			}
		}
	}
	*job.use = *known
	return nil
}

func (m *Manager) use(name string) (use *store.VolumeUse, err error) {
	err = m.view(func(tx *store.Tx) error {
		use, err = tx.Uses().Get(name)
		return err
	})
	return use, err
}

// nodeSide returns the driver and the capability of the node calls for a use.
func (m *Manager) nodeSide(ctx context.Context, use *store.VolumeUse, mountGroup string) (*plugins.Driver, *csi.VolumeCapability, error) {
	driver, err := m.options.Drivers.Driver(use.Driver)
	if err != nil {
		return nil, nil, err
	}
	can, err := driver.Client.NodeCapabilities(ctx)
	if err != nil {
		return nil, nil, err
	}
	wanted := claim.Use{Block: use.Block, FSType: use.FSType, MountFlags: use.MountFlags}
	if can.MountGroup {
		wanted.MountGroup = mountGroup
	}
	capability, err := wanted.NodeCapability(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, use.Modes)
	return driver, capability, err
}

// attach calls the controller for drivers that attach. Inline volumes never
// reach one.
func (m *Manager) attach(ctx context.Context, job job) error {
	use := job.use
	if use.Inline || use.Attach == store.PhaseDone {
		return nil
	}
	var needed bool
	err := m.ask(ctx, job.label, func(ctx context.Context) (err error) {
		needed, err = m.needsAttach(ctx, use)
		return err
	})
	if err != nil || !needed {
		return err
	}
	return m.step(ctx, job.label, StepAttach, m.onward(claim.CallAttach), func(ctx context.Context) (string, error) {
		driver, err := m.options.Drivers.Driver(use.Driver)
		if err != nil {
			return "", err
		}
		can, err := driver.Client.ControllerCapabilities(ctx)
		if err != nil {
			return "", err
		}
		wanted := claim.Use{Block: use.Block, FSType: use.FSType, MountFlags: use.MountFlags}
		capability, err := wanted.NodeCapability(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, use.Modes)
		if err != nil {
			return "", err
		}
		use.Attach = store.PhaseDoing
		return "", m.transition(use, "attach", claim.CallAttach, func() (err error) {
			use.PublishContext, err = driver.Client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: use.Handle, NodeId: use.NodeID, VolumeCapability: capability, VolumeContext: use.Attributes,
			})
			return err
		}, func() { use.Attach = store.PhaseDone })
	})
}

func (m *Manager) needsAttach(ctx context.Context, use *store.VolumeUse) (bool, error) {
	object, err := m.csiDriver(use.Driver)
	if err != nil || !claim.NeedsAttach(object) {
		return false, err
	}
	driver, err := m.options.Drivers.Driver(use.Driver)
	if err != nil {
		return false, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	return can.Attach, err
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

// stage mounts the volume once for the machine. The directory is made also
// for a driver that answers from an earlier attempt.
func (m *Manager) stage(ctx context.Context, job job) error {
	use := job.use
	if use.Inline || use.Stage == store.PhaseDone {
		return nil
	}
	var needed bool
	err := m.ask(ctx, job.label, func(ctx context.Context) (err error) {
		needed, err = m.stages(ctx, use.Driver)
		return err
	})
	if err != nil || !needed {
		return err
	}
	use.StagingPath = m.options.Paths.Staging(use.Driver, use.Handle)
	if use.Block {
		use.StagingPath = m.options.Paths.BlockStaging(use.SpecName)
	}
	return m.step(ctx, job.label, StepStage, m.onward(claim.CallNode), func(ctx context.Context) (string, error) {
		driver, capability, err := m.nodeSide(ctx, use, mountGroup(job.pod))
		if err != nil {
			return "", err
		}
		use.Stage = store.PhaseDoing
		return "", m.transition(use, "stage", claim.CallNode, func() error {
			if err := makeDirectory(use.StagingPath); err != nil {
				return err
			}
			return driver.Client.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
				VolumeId: use.Handle, StagingTargetPath: use.StagingPath, VolumeCapability: capability,
				PublishContext: use.PublishContext, VolumeContext: use.Attributes,
			})
		}, func() { use.Stage = store.PhaseDone })
	})
}

func (m *Manager) stages(ctx context.Context, name string) (bool, error) {
	driver, err := m.options.Drivers.Driver(name)
	if err != nil {
		return false, err
	}
	can, err := driver.Client.NodeCapabilities(ctx)
	return can.Stage, err
}

// publish brings the staged volume to the pod, and looks whether it is there.
func (m *Manager) publish(ctx context.Context, job job) error {
	use := job.use
	target := use.Targets[job.target]
	return m.step(ctx, job.label, StepPublish, m.onward(claim.CallNode), func(ctx context.Context) (string, error) {
		driver, capability, err := m.nodeSide(ctx, use, mountGroup(job.pod))
		if err != nil {
			return "", err
		}
		target.Phase = store.PhaseDoing
		use.Targets[job.target] = target
		err = m.transition(use, "publish", claim.CallNode, func() error {
			if err := makeParent(job.target); err != nil {
				return err
			}
			err := driver.Client.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
				VolumeId: use.Handle, StagingTargetPath: use.StagingPath, TargetPath: job.target, VolumeCapability: capability,
				Readonly: job.readOnly, PublishContext: use.PublishContext,
				VolumeContext: claim.PublishContext(job.pod, use.Attributes, use.Inline),
			})
			if err != nil {
				return err
			}
			return verifyPublished(job.target, use.Block)
		}, func() {
			target.Phase = store.PhaseDone
			use.Targets[job.target] = target
		})
		if err != nil {
			return "", err
		}
		return job.target, m.saveUse(use)
	})
}

func mountGroup(pod *corev1.Pod) string {
	if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.FSGroup == nil {
		return ""
	}
	return fmt.Sprint(*pod.Spec.SecurityContext.FSGroup)
}
