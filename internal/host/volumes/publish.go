package volumes

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// onDriver makes a call on the instance of a driver that serves now. When that
// instance goes away in the middle of the call and another one serves in its
// place, that one is asked the same at once: every call of CSI may be repeated,
// and an upgrade of the driver is not a failure.
func (m *Manager) onDriver(ctx context.Context, name string, call func(*plugins.Driver) error) error {
	driver, err := m.options.Drivers.Driver(name)
	if err != nil {
		return err
	}
	for {
		err := call(driver)
		if !client.IsInterrupted(err) || ctx.Err() != nil {
			return err
		}
		next, gone := m.options.Drivers.Driver(name)
		if gone != nil {
			return fmt.Errorf("%w: %w", gone, err)
		}
		if next == driver {
			return err
		}
		m.logger.Info("the driver was replaced during a call; its successor is asked", "driver", name, "error", err)
		driver = next
	}
}

// stage mounts the volume once for the machine. The directory is made also
// for a driver that answers from an earlier attempt.
func (m *Manager) stage(ctx context.Context, job job) error {
	use := job.use
	if use.Inline || use.Stage == store.PhaseDone {
		return nil
	}
	var needed bool
	err := ask(ctx, job.label, func(ctx context.Context) (err error) {
		needed, err = m.stages(ctx, use.Driver)
		return err
	})
	if err != nil || !needed {
		return err
	}
	if use.Stage == store.PhaseNone {
		use.StagingPath = m.staging(use)
		if isMounted(use.StagingPath) {
			return fmt.Errorf("%s: %w: something that this host did not mount is mounted at the staging path %s: unmount it", job.label, errLocal, use.StagingPath)
		}
	}
	return m.stepOf(ctx, job.subject(), StepStage, onward(claim.CallNode), func(ctx context.Context) (string, error) {
		return "", m.callStage(ctx, job)
	})
}

// staging is where a volume is staged.
func (m *Manager) staging(use *store.VolumeUse) string {
	if use.Block {
		return m.options.Paths.BlockStaging(use.SpecName)
	}
	return m.options.Paths.Staging(use.Driver, use.Handle)
}

func (m *Manager) callStage(ctx context.Context, job job) error {
	use := job.use
	capability, err := m.nodeCapability(ctx, job)
	if err != nil {
		return err
	}
	secrets, err := m.nodeSecret(job.label, job.secrets.stage)
	if err != nil {
		return err
	}
	use.Stage = store.PhaseDoing
	return m.transition(use, "stage", claim.CallNode, func() error {
		if err := makeDirectory(use.StagingPath); err != nil {
			return err
		}
		return m.onDriver(ctx, use.Driver, func(driver *plugins.Driver) error {
			return driver.Client.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
				VolumeId: use.Handle, StagingTargetPath: use.StagingPath, VolumeCapability: capability,
				PublishContext: use.PublishContext, VolumeContext: use.Attributes, Secrets: secrets,
			})
		})
	}, func() {
		use.Stage, use.StageMounted = store.PhaseDone, isMounted(use.StagingPath)
		use.ExpandRefused = "" // the volume is used anew
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

// publish brings the staged volume to the pod, looks whether it is there, and
// gives it to the pod's group. Only then it is recorded as published: what a
// crash snapshotsOf off is done again from the start.
func (m *Manager) publish(ctx context.Context, job job) error {
	use := job.use
	target := use.Targets[job.target]
	if target.Phase == store.PhaseNone && !use.Block && isMounted(job.target) {
		return fmt.Errorf("%s: %w: something that this host did not mount is mounted at the target path %s: unmount it", job.label, errLocal, job.target)
	}
	err := m.stepOf(ctx, job.subject(), StepPublish, onward(claim.CallNode), func(ctx context.Context) (string, error) {
		request, err := m.publishRequest(ctx, job)
		if err != nil {
			return "", err
		}
		target.Phase, target.SELinuxLabel = store.PhaseDoing, job.selinux
		use.Targets[job.target] = target
		if path, _ := publishedFor(use, ""); path == "" {
			use.ExpandRefused = "" // no pod uses the volume now
		}
		return job.target, m.transition(use, "publish", claim.CallNode,
			func() error { return m.callPublish(ctx, job, request) }, func() {})
	})
	if err != nil {
		return err
	}
	if err := m.setOwnership(ctx, job); err != nil {
		return err
	}
	if err := m.hit("publish/owned"); err != nil {
		return err
	}
	target.Phase, target.Device = store.PhaseDone, deviceAt(job.target)
	use.Targets[job.target] = target
	return m.saveUse(use)
}

func (m *Manager) publishRequest(ctx context.Context, job job) (*csi.NodePublishVolumeRequest, error) {
	capability, err := m.nodeCapability(ctx, job)
	if err != nil {
		return nil, err
	}
	secrets, err := m.nodeSecret(job.label, job.secrets.publish)
	if err != nil {
		return nil, err
	}
	request := &csi.NodePublishVolumeRequest{
		VolumeId: job.use.Handle, TargetPath: job.target, VolumeCapability: capability,
		Readonly: job.readOnly, PublishContext: job.use.PublishContext, Secrets: secrets,
		VolumeContext: claim.PublishContext(job.pod, job.use.Attributes, job.use.Inline),
	}
	if job.use.Stage == store.PhaseDone {
		request.StagingTargetPath = job.use.StagingPath
	}
	return request, nil
}

func (m *Manager) callPublish(ctx context.Context, job job, request *csi.NodePublishVolumeRequest) error {
	if err := makeParent(job.target); err != nil {
		return err
	}
	err := m.onDriver(ctx, job.use.Driver, func(driver *plugins.Driver) error {
		return driver.Client.NodePublishVolume(ctx, request)
	})
	if err != nil {
		return err
	}
	return verifyPublished(job.target, job.use.Block)
}
