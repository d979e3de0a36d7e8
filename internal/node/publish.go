package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// PublishRequest asks to show a staged volume, or a new inline volume, at a
// workload's path.
type PublishRequest struct {
	VolumeID, StagingPath, TargetPath string
	Capability                        backend.Capability
	ReadOnly                          bool
	PublishContext, VolumeContext     map[string]string
}

// Publish shows the volume at the target path, which it makes; its directory
// must exist. A volume context with csi.storage.k8s.io/ephemeral = "true" asks
// for an inline volume, which is made, formatted and mounted, all or nothing.
//
// ErrExists: published there in another way. ErrPrecondition: not staged,
// something else is mounted there, or the access mode allows one target only
// and there is one. Others as of Stage.
func (e *Engine) Publish(ctx context.Context, r PublishRequest) error {
	if err := checkID(r.VolumeID); err != nil {
		return err
	}
	if err := e.paths.CheckPath("target_path", r.TargetPath); err != nil {
		return err
	}
	flags, err := e.checkCapability(r.Capability, r.ReadOnly)
	if err != nil {
		return err
	}
	do := func(ctx context.Context) error { return e.publishStaged(ctx, r, flags) }
	if isInline(r.VolumeContext) {
		owner, attributes, err := checkInline(r)
		if err != nil {
			return err
		}
		do = func(ctx context.Context) error { return e.publishInline(ctx, r, flags, owner, attributes) }
	} else if err := e.checkStagingPath(r); err != nil {
		return err
	}
	keys := []string{VolumeKey(r.VolumeID), TargetKey(r.TargetPath)}
	return e.calls.Run(ctx, "publish volume "+r.VolumeID, keys, do)
}

func (e *Engine) checkStagingPath(r PublishRequest) error {
	if r.StagingPath == "" {
		return fmt.Errorf("%w: staging_target_path is missing; stage volume %s first", backend.ErrPrecondition, r.VolumeID)
	}
	if err := e.paths.CheckPath("staging_target_path", r.StagingPath); err != nil {
		return err
	}
	inside := func(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	if inside(r.StagingPath, r.TargetPath) || inside(r.TargetPath, r.StagingPath) {
		return fmt.Errorf("%w: target_path and staging_target_path are equal, or one contains the other", backend.ErrInvalid)
	}
	return nil
}

// publication is one NodePublishVolume call of a staged volume.
type publication struct {
	request PublishRequest
	flags   mount.Flags
	devices []backend.Device
	staging *mount.Point // the mount that is shown
	target  *mount.Point
}

func (e *Engine) publishStaged(ctx context.Context, r PublishRequest, flags mount.Flags) error {
	devices, err := e.backend.Devices(ctx, r.VolumeID)
	if err != nil {
		return err
	}
	stagingPath := r.StagingPath
	if r.Capability.Block {
		stagingPath = filepath.Join(stagingPath, stagedNode)
	}
	staging, err := e.paths.Resolve("staging_target_path", stagingPath)
	if errors.Is(err, backend.ErrNotFound) {
		return notStaged(r)
	}
	if err != nil {
		return err
	}
	defer closeQuietly(staging)
	target, err := e.targetPoint(r.TargetPath)
	if err != nil {
		return err
	}
	defer closeQuietly(target)
	p := publication{request: r, flags: flags, devices: devices, staging: staging, target: target}
	if r.Capability.Block {
		return e.publishBlock(ctx, p)
	}
	return e.publishFilesystem(ctx, p)
}

func (e *Engine) targetPoint(path string) (*mount.Point, error) {
	mountPoint, err := e.paths.Resolve("target_path", path)
	if errors.Is(err, backend.ErrNotFound) {
		return nil, noDirectory("the directory of target_path", filepath.Dir(path))
	}
	return mountPoint, err
}

func notStaged(r PublishRequest) error {
	return fmt.Errorf("%w: it is not staged at %s in this way (block = %t)",
		backend.ErrPrecondition, r.StagingPath, r.Capability.Block)
}

// publishFilesystem binds the staged filesystem to the target.
func (e *Engine) publishFilesystem(ctx context.Context, p publication) (err error) {
	staged, err := p.staged()
	if err != nil {
		return err
	}
	defer closeQuietly(staged)
	if err := e.checkType(p, staged); err != nil {
		return err
	}
	if err := e.checkLabel(staged, p.flags); err != nil {
		return err
	}
	if published, err := e.publishedAlready(p, staged); published || err != nil {
		return err
	}
	if err := e.checkSoleTarget(p); err != nil {
		return err
	}
	created, err := p.target.MakeDir()
	if err != nil {
		return err
	}
	defer func() { err = undoMade(created, p.target, err) }()
	if err := e.points.Hit("node/publish/made"); err != nil {
		return err
	}
	tree, err := staged.Bind(p.flags.Attributes...)
	if err != nil {
		return err
	}
	defer closeQuietly(tree)
	return e.attach(ctx, p.target, tree, "node/publish")
}

// staged is the volume's mount in the staging directory; ErrPrecondition when
// it is not there.
func (p publication) staged() (*mount.Node, error) {
	node, err := p.staging.Open()
	if ignoreAbsent(err) != nil {
		return nil, err
	}
	if err == nil && node.MountRoot && node.Block == p.request.Capability.Block && owns(node, p.devices) {
		return node, nil
	}
	if node != nil {
		closeQuietly(node)
	}
	return nil, notStaged(p.request)
}

// checkType compares the filesystem that is staged with the one that was requested.
func (e *Engine) checkType(p publication, staged *mount.Node) error {
	found, err := e.typeOf(staged)
	if err != nil {
		return err
	}
	if desired := p.request.Capability.FSType; desired != "" && desired != found {
		return fmt.Errorf("%w: staged as %s; fs_type is %s", backend.ErrExists, found, desired)
	}
	return nil
}

// publishedAlready compares the target with the request.
func (e *Engine) publishedAlready(p publication, staged *mount.Node) (bool, error) {
	node, err := p.target.Open()
	if err != nil {
		return false, ignoreAbsent(err)
	}
	defer closeQuietly(node)
	if !node.MountRoot {
		return false, nil
	}
	if !owns(node, p.devices) {
		return false, occupied(p.target, node)
	}
	readOnly, err := mountedReadOnly(node)
	if err != nil {
		return false, err
	}
	stagedReadOnly, err := mountedReadOnly(staged)
	if err != nil {
		return false, err
	}
	if node.Block || readOnly != (p.flags.ReadOnly() || stagedReadOnly) {
		return false, fmt.Errorf("%w: published at %s with block = %t, read-only = %t",
			backend.ErrExists, p.target.Path, node.Block, readOnly)
	}
	return true, nil
}

// checkSoleTarget limits SINGLE_NODE_SINGLE_WRITER to one target. CSI wants the
// same for SINGLE_NODE_WRITER, but Kubernetes publishes to several pods of one
// node with it, so that mode is let through.
func (e *Engine) checkSoleTarget(p publication) error {
	if p.request.Capability.Mode != backend.SingleNodeSingleWriter {
		return nil
	}
	uses, err := usesOf(p.devices, p.staging.Real(), p.target.Real())
	if err != nil {
		return err
	}
	if len(uses) > 0 {
		return fmt.Errorf("%w: access mode SINGLE_NODE_SINGLE_WRITER allows one target, and it is published at %s",
			backend.ErrPrecondition, several(uses))
	}
	return nil
}
