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

// onDriver makes a call on the instance of a driver that serves now. If that
// instance ends during the call and another one serves, it repeats the call there at
// once: every call of CSI may be repeated, and an upgrade of the driver is not a
// failure.
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
func (m *Manager) stage(ctx context.Context, toMount volumeToMount) error {
	use := toMount.use
	if use.Inline || use.Stage == store.PhaseDone {
		return nil
	}
	var needed bool
	err := ask(ctx, toMount.label, func(ctx context.Context) (err error) {
		needed, err = m.stages(ctx, use.Driver)
		return err
	})
	if err != nil || !needed {
		return err
	}
	if use.Stage == store.PhaseNone {
		use.StagingPath = m.staging(use)
		if m.isMounted(use.StagingPath) {
			return fmt.Errorf("%s: %w: something that this host did not mount is mounted at the staging path %s: unmount it",
				toMount.label, errLocal, use.StagingPath)
		}
	}
	of := toMount.subject()
	return m.stepOf(ctx, of, StepStage, onward(claim.CallNode), func(ctx context.Context) (string, error) {
		return "", m.callStage(ctx, toMount)
	})
}

// staging is the path at which a volume is staged.
func (m *Manager) staging(use *store.VolumeUse) string {
	if use.Block {
		return m.options.Paths.BlockStaging(use.SpecName)
	}
	return m.options.Paths.Staging(use.Driver, use.Handle)
}

func (m *Manager) callStage(ctx context.Context, toMount volumeToMount) error {
	use := toMount.use
	capability, err := m.nodeCapability(ctx, toMount)
	if err != nil {
		return err
	}
	secrets, err := m.nodeSecret(toMount.label, toMount.secrets.stage)
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
		use.Stage, use.StageMounted = store.PhaseDone, m.isMounted(use.StagingPath)
		use.ExpandRefused = "" // the volume is used again
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

// publish publishes the staged volume for the pod, checks that it is mounted, and
// sets the pod's group. Only then it records the volume as published, so that a
// crash in between repeats all of it.
func (m *Manager) publish(ctx context.Context, toMount volumeToMount) error {
	use := toMount.use
	target := use.Targets[toMount.target]
	if target.Phase == store.PhaseNone && !use.Block && m.isMounted(toMount.target) {
		return fmt.Errorf("%s: %w: something that this host did not mount is mounted at the target path %s: unmount it",
			toMount.label, errLocal, toMount.target)
	}
	of := toMount.subject()
	err := m.stepOf(ctx, of, StepPublish, onward(claim.CallNode), func(ctx context.Context) (string, error) {
		request, err := m.publishRequest(ctx, toMount)
		if err != nil {
			return "", err
		}
		target.Phase, target.SELinuxLabel = store.PhaseDoing, toMount.selinux
		use.Targets[toMount.target] = target
		if path, _ := publishedFor(use, ""); path == "" {
			use.ExpandRefused = "" // no pod uses the volume now
		}
		return toMount.target, m.transition(use, "publish", claim.CallNode,
			func() error { return m.callPublish(ctx, toMount, request) }, func() {})
	})
	if err != nil {
		return err
	}
	if err := m.setOwnership(ctx, toMount); err != nil {
		return err
	}
	if err := m.hit("publish/owned"); err != nil {
		return err
	}
	target.Phase, target.Device = store.PhaseDone, m.deviceAt(toMount.target)
	use.Targets[toMount.target] = target
	return m.saveUse(use)
}

func (m *Manager) publishRequest(ctx context.Context, toMount volumeToMount) (*csi.NodePublishVolumeRequest, error) {
	capability, err := m.nodeCapability(ctx, toMount)
	if err != nil {
		return nil, err
	}
	secrets, err := m.nodeSecret(toMount.label, toMount.secrets.publish)
	if err != nil {
		return nil, err
	}
	request := &csi.NodePublishVolumeRequest{
		VolumeId: toMount.use.Handle, TargetPath: toMount.target, VolumeCapability: capability,
		Readonly: toMount.readOnly, PublishContext: toMount.use.PublishContext, Secrets: secrets,
		VolumeContext: claim.PublishContext(toMount.pod, toMount.use.Attributes, toMount.use.Inline),
	}
	if toMount.use.Stage == store.PhaseDone {
		request.StagingTargetPath = toMount.use.StagingPath
	}
	return request, nil
}

func (m *Manager) callPublish(ctx context.Context, toMount volumeToMount, request *csi.NodePublishVolumeRequest) error {
	if err := makeParent(toMount.target); err != nil {
		return err
	}
	err := m.onDriver(ctx, toMount.use.Driver, func(driver *plugins.Driver) error {
		return driver.Client.NodePublishVolume(ctx, request)
	})
	if err != nil {
		return err
	}
	return m.verifyPublished(toMount.target, toMount.use.Block)
}
