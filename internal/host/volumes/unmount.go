package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// unmount unpublishes a volume at the chosen targets. If it has no other, it unstages and
// detaches the volume.
func (m *Manager) unmount(ctx context.Context, name string, chosen func(store.Target) bool) error {
	unlock, err := m.lock(ctx, "volume "+name)
	if err != nil {
		return err
	}
	defer unlock()
	use, err := m.useNamed(name)
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
		use.LastPod = use.Targets[path].PodUID
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
	return m.saveUse(use, dropAttachment(use))
}

// undo takes one step that undoes another: intent, call, result. The result is written
// with the next step's intent, or by the caller's last saveUse.
func (m *Manager) undo(
	ctx context.Context, use *store.VolumeUse, step Step, name string,
	intend func(), call func(context.Context) error, done func(),
) error {
	return m.stepOf(ctx, subjectOf(use), step, back(), func(ctx context.Context) (string, error) {
		intend()
		return "", m.transition(use, name, claim.CallNode, func() error { return call(ctx) }, done)
	})
}

// subjectOf is the subject of a step that undoes another: the pods in the record, and the
// claim.
func subjectOf(use *store.VolumeUse) subject {
	of := subject{label: use.Label, driver: use.Driver, handle: use.Handle}
	for _, path := range slices.Sorted(maps.Keys(use.Targets)) {
		if target := use.Targets[path]; target.PodUID == use.LastPod && target.Pod != "" {
			of.about = append(of.about, journal.Ref{Kind: "Pod", Key: target.Pod, UID: string(target.PodUID)})
		}
	}
	if key, ok := strings.CutPrefix(use.Label, claimLabel("")); ok {
		of.about = append(of.about, journal.Ref{Kind: "PersistentVolumeClaim", Key: key})
	}
	return of
}

func podRefOf(key string) journal.Ref { return journal.Ref{Kind: "Pod", Key: key} }

// unpublish is called after each attempt to publish, even after a failed one: the driver
// may not have cleaned up.
func (m *Manager) unpublish(ctx context.Context, use *store.VolumeUse, path string) error {
	target := use.Targets[path]
	if target.Phase == store.PhaseNone { // the driver was not called
		delete(use.Targets, path)
		return nil
	}
	return m.undo(ctx, use, StepUnpublish, "unpublish", func() {
		target.Phase = store.PhaseUndoing
		use.Targets[path] = target
	}, func(ctx context.Context) error {
		request := &csi.NodeUnpublishVolumeRequest{VolumeId: use.Handle, TargetPath: path}
		err := m.onDriver(ctx, use.Driver, func(driver *plugins.Driver) error {
			return driver.Client.NodeUnpublishVolume(ctx, request)
		})
		if err := m.undoneAt(use, path, err); err != nil {
			return err
		}
		return m.removeTarget(path)
	}, func() {
		delete(use.Targets, path)
		m.node.due.forget(path)
	})
}

// unstage unstages the volume if it was staged, even if the driver does not stage any
// more. undoneAt decides about a failure.
func (m *Manager) unstage(ctx context.Context, use *store.VolumeUse) error {
	if use.Stage == store.PhaseNone {
		return nil
	}
	return m.undo(ctx, use, StepUnstage, "unstage", func() { use.Stage = store.PhaseUndoing },
		func(ctx context.Context) error {
			if others := m.otherMounts(use); len(others) > 0 {
				return fmt.Errorf("%w: the volume is also mounted at %s, but not by this host: unmount it there",
					errForeign, strings.Join(others, ", "))
			}
			request := &csi.NodeUnstageVolumeRequest{VolumeId: use.Handle, StagingTargetPath: use.StagingPath}
			err := m.onDriver(ctx, use.Driver, func(driver *plugins.Driver) error {
				return driver.Client.NodeUnstageVolume(ctx, request)
			})
			if err := m.undoneAt(use, use.StagingPath, err); err != nil {
				return err
			}
			return m.removeStaging(use.StagingPath)
		}, func() { use.Stage, use.StageMounted = store.PhaseNone, false })
}

// errForeign means that another program still uses the volume.
var errForeign = errors.New("still in use")

// otherMounts returns the mount points, other than its staging path, where another
// program mounted a staged filesystem. Mounts of this host do not count: volumes that
// are one filesystem to the kernel, such as two of one share, must not wait for each
// other to be unstaged. If the mount table or the records cannot be read, it returns
// none and leaves the check to the driver.
func (m *Manager) otherMounts(use *store.VolumeUse) []string {
	if !use.StageMounted {
		return nil
	}
	others, err := m.options.Mounts.OthersOf(use.StagingPath)
	if err == nil && len(others) > 0 {
		others, err = m.foreign(use, others)
	}
	if err != nil {
		m.logger.Warn("other mounts of a volume are not known", "volume", use.Handle, "error", err)
		return nil
	}
	return others
}

// foreign filters the mount points of the host's other volumes out of paths.
func (m *Manager) foreign(use *store.VolumeUse, paths []string) ([]string, error) {
	known := map[string]bool{}
	err := m.view(func(tx *store.Tx) error {
		uses, err := tx.Uses().All()
		for _, other := range uses {
			if other.Name == use.Name {
				continue
			}
			known[other.StagingPath] = true
			for path := range other.Targets {
				known[path] = true
			}
		}
		return err
	})
	return slices.DeleteFunc(paths, func(path string) bool { return belowKnown(known, path, m.options.Paths.Root) }), err
}

// inUse describes the users of a volume on this machine, "" for none.
func (m *Manager) inUse(driver, handle string) (string, error) {
	use, err := m.useNamed(claim.UniqueName(driver, handle))
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
