package windows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// Publish makes the target path a link to the staged volume.
//
// ErrExists: it is published there in another way. ErrPrecondition: it is not staged, the
// request is read-only, another file is at the target, or the access mode allows one
// target only, which exists already. Other errors are those of Stage.
func (e *Engine) Publish(ctx context.Context, r node.PublishRequest) error {
	if err := checkID(r.VolumeID); err != nil {
		return err
	}
	target, err := e.path("target_path", r.TargetPath)
	if err != nil {
		return err
	}
	if err := checkCapability(r.Capability, r.ReadOnly); err != nil {
		return err
	}
	if r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		return fmt.Errorf("%w: Windows nodes have no inline volumes; use a PersistentVolumeClaim", backend.ErrInvalid)
	}
	staging, err := e.stagingOf(r, target)
	if err != nil {
		return err
	}
	keys := []string{node.VolumeKey(r.VolumeID), node.TargetKey(foldPath(target))}
	return e.calls.Run(ctx, "publish volume "+r.VolumeID, keys, func(ctx context.Context) error {
		return e.publish(ctx, r, staging, target)
	})
}

func (e *Engine) stagingOf(r node.PublishRequest, target string) (string, error) {
	if r.StagingPath == "" {
		return "", fmt.Errorf("%w: staging_target_path is missing; stage volume %s first",
			backend.ErrPrecondition, r.VolumeID)
	}
	staging, err := e.path("staging_target_path", r.StagingPath)
	if err != nil {
		return "", err
	}
	if inside(staging, target) || inside(target, staging) {
		return "", fmt.Errorf("%w: one of target_path and staging_target_path contains the other", backend.ErrInvalid)
	}
	return staging, nil
}

func foldPath(path string) string { return strings.ToLower(path) }

func inside(dir, path string) bool {
	return paths.EqualText(path, dir) || strings.HasPrefix(foldPath(path), foldPath(dir)+`\`)
}

func (e *Engine) publish(ctx context.Context, r node.PublishRequest, staging, target string) error {
	staged, err := e.at(ctx, r.VolumeID, staging, r.PublishContext)
	if err != nil {
		return err
	}
	if !staged.matches {
		return fmt.Errorf("%w: it is not staged at %s", backend.ErrPrecondition, staging)
	}
	if err := e.clearWay(ctx, r, target); err != nil {
		return err
	}
	if err := e.checkSoleTarget(ctx, r, target); err != nil {
		return err
	}
	if err := e.host.Filesystem.Mkdir(ctx, parent(target)); err != nil {
		return fmt.Errorf("make the directory of target_path: %w", err)
	}
	if err := e.points.Hit("winnode/publish/made"); err != nil {
		return err
	}
	if err := e.host.Filesystem.Link(ctx, staging, target); err != nil {
		return fmt.Errorf("link %s to %s: %w", target, staging, err)
	}
	if err := e.points.Hit("winnode/publish/linked"); err != nil {
		return err
	}
	there, err := e.at(ctx, r.VolumeID, target, r.PublishContext)
	if err != nil {
		return err
	}
	if !there.matches || !sameVolume(there.volume, staged.volume) {
		return fmt.Errorf("%w: linking %s to %s succeeded, but it leads to %q", backend.ErrUnavailable, target,
			staging, there.volume)
	}
	e.targets.add(r.VolumeID, target)
	return nil
}

// clearWay removes an empty directory, or a dangling link, from the path of the new link.
// A link to another volume stays, and so do files. A link to this volume stays as well:
// Link compares it.
func (e *Engine) clearWay(ctx context.Context, r node.PublishRequest, target string) error {
	exists, err := e.host.Filesystem.PathExists(ctx, target)
	if err != nil || !exists {
		return err
	}
	isLink, err := e.host.Filesystem.IsLink(ctx, target)
	if absent(err) != nil {
		return err
	}
	if isLink {
		there, err := e.at(ctx, r.VolumeID, target, r.PublishContext)
		if err == nil && there.volume != "" && !there.matches {
			err = occupied(target, there)
		}
		return err
	}
	err = e.host.Filesystem.Rmdir(ctx, target, false)
	if absent(err) != nil {
		return fmt.Errorf("target_path must not exist, or be an empty directory: %w", err)
	}
	return e.points.Hit("winnode/publish/cleared")
}

// checkSoleTarget allows SINGLE_NODE_SINGLE_WRITER one of the targets that this process
// has published: Windows does not list the links to a volume.
func (e *Engine) checkSoleTarget(ctx context.Context, r node.PublishRequest, target string) error {
	if r.Capability.Mode != backend.SingleNodeSingleWriter {
		return nil
	}
	other, err := e.elsewhere(ctx, &e.targets, r.VolumeID, target)
	if err != nil || other == "" {
		return err
	}
	return fmt.Errorf("%w: access mode SINGLE_NODE_SINGLE_WRITER allows one target, and it is published at %s",
		backend.ErrPrecondition, other)
}

func parent(path string) string { return path[:strings.LastIndex(path, `\`)] }

// Unpublish removes the link. A missing target, volume or disk is not an error.
// ErrPrecondition if another volume is there, or a directory with files; both stay.
func (e *Engine) Unpublish(ctx context.Context, volumeID, targetPath string) error {
	if err := checkID(volumeID); err != nil {
		return err
	}
	target, err := e.path("target_path", targetPath)
	if err != nil {
		return err
	}
	keys := []string{node.TargetKey(foldPath(target))}
	return e.calls.Run(ctx, "unpublish volume "+volumeID, keys, func(ctx context.Context) error {
		return e.unpublish(ctx, volumeID, target)
	})
}

func (e *Engine) unpublish(ctx context.Context, volumeID, target string) error {
	there, err := e.at(ctx, volumeID, target, nil)
	if err != nil {
		return err
	}
	if there.disk != nil && !there.matches {
		return occupied(target, there)
	}
	// Without force it removes only a link or an empty directory.
	err = e.host.Filesystem.Rmdir(ctx, target, false)
	if absent(err) != nil {
		return fmt.Errorf("remove target_path: %w", err)
	}
	if err := e.points.Hit("winnode/unpublish/removed"); err != nil {
		return err
	}
	exists, err := e.host.Filesystem.PathExists(ctx, target)
	if err == nil && exists {
		err = errors.New("removing target_path succeeded, but it still exists")
	}
	if err == nil {
		e.targets.remove(volumeID, target)
	}
	return err
}
