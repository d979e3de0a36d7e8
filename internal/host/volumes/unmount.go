package volumes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// unmount unpublishes a volume where the targets are chosen, and unstages and
// detaches it when none is left.
func (m *Manager) unmount(ctx context.Context, name string, chosen func(store.Target) bool) error {
	unlock, err := m.lock(ctx, "volume "+name)
	if err != nil {
		return err
	}
	defer unlock()
	use, err := m.use(name)
	if err != nil || use == nil {
		return err
	}
	return m.unmountLocked(ctx, use, chosen)
}

func (m *Manager) unmountLocked(ctx context.Context, use *store.VolumeUse, chosen func(store.Target) bool) error {
	for _, path := range slices.Sorted(maps.Keys(use.Targets)) {
		if !chosen(use.Targets[path]) {
			continue
		}
		if err := m.unpublish(ctx, use, path); err != nil {
			return err
		}
	}
	if len(use.Targets) > 0 {
		return m.saveUse(use)
	}
	if err := m.unstage(ctx, use); err != nil {
		return err
	}
	if err := m.detach(ctx, use); err != nil {
		return err
	}
	return m.saveUse(use)
}

// undo is one step back: intent, call, result. The result is written with the
// next step's intent, or by the caller's last saveUse.
func (m *Manager) undo(ctx context.Context, use *store.VolumeUse, step Step, name string, intend func(), call func(context.Context, *plugins.Driver) error, done func()) error {
	return m.step(ctx, use.Label, step, m.back(), func(ctx context.Context) (string, error) {
		intend()
		return "", m.transition(use, name, claim.CallNode, func() error {
			driver, err := m.options.Drivers.Driver(use.Driver)
			if err != nil {
				return err
			}
			return call(ctx, driver)
		}, done)
	})
}

// unpublish is called after every publish that was tried, a failed one
// included: harmless for a driver that cleaned up, and a way out for one that
// did not.
func (m *Manager) unpublish(ctx context.Context, use *store.VolumeUse, path string) error {
	target := use.Targets[path]
	if target.Phase == store.PhaseNone { // never got as far as a call
		delete(use.Targets, path)
		return nil
	}
	return m.undo(ctx, use, StepUnpublish, "unpublish", func() {
		target.Phase = store.PhaseUndoing
		use.Targets[path] = target
	}, func(ctx context.Context, driver *plugins.Driver) error {
		err := driver.Client.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: use.Handle, TargetPath: path})
		if err != nil {
			return err
		}
		return m.removeTarget(path)
	}, func() { delete(use.Targets, path) })
}

func (m *Manager) unstage(ctx context.Context, use *store.VolumeUse) error {
	if use.Stage == store.PhaseNone {
		return nil
	}
	return m.undo(ctx, use, StepUnstage, "unstage", func() { use.Stage = store.PhaseUndoing },
		func(ctx context.Context, driver *plugins.Driver) error {
			err := driver.Client.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: use.Handle, StagingTargetPath: use.StagingPath})
			if err != nil {
				return err
			}
			return m.removeStaging(use.StagingPath)
		}, func() { use.Stage = store.PhaseNone })
}

func (m *Manager) detach(ctx context.Context, use *store.VolumeUse) error {
	if use.Attach == store.PhaseNone {
		return nil
	}
	return m.undo(ctx, use, StepDetach, "detach", func() { use.Attach = store.PhaseUndoing },
		func(ctx context.Context, driver *plugins.Driver) error {
			return driver.Client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: use.Handle, NodeId: use.NodeID})
		}, func() { use.Attach = store.PhaseNone })
}

// inUse tells who uses a volume on this machine.
func (m *Manager) inUse(driver, handle string) (string, error) {
	use, err := m.use(claim.UniqueName(driver, handle))
	if err != nil || use == nil {
		return "", err
	}
	var pods []string
	for _, target := range use.Targets {
		pods = append(pods, target.Pod)
	}
	if len(pods) == 0 {
		return "an operation that is not finished", nil
	}
	slices.Sort(pods)
	return fmt.Sprintf("pod %s", strings.Join(slices.Compact(pods), ", ")), nil
}
