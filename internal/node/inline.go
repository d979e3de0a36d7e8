package node

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// The keys of the orchestrator in a volume context. With podInfoOnMount the
// kubelet overwrites all five; without it none
// can be trusted, so fewer than five are a forgery or a wrong CSIDriver object.
const (
	reservedPrefix = "csi.storage.k8s.io/"
	ephemeralKey   = reservedPrefix + "ephemeral"
)

var podKeys = []string{"pod.name", "pod.namespace", "pod.uid", "serviceAccount.name", "ephemeral"}

// inlineHandle is the form of the kubelet's volume handles for inline volumes.
// No backend makes such an ID.
var inlineHandle = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

// undoTime bounds the clean-up after a failed inline publish. It does not end
// with the caller's context: the call may never be repeated.
const undoTime = 30 * time.Second

func isInline(volumeContext map[string]string) bool { return volumeContext[ephemeralKey] == "true" }

// checkInline separates the orchestrator's keys from the pod author's.
func checkInline(r PublishRequest) (owner, attributes map[string]string, err error) {
	owner, attributes = map[string]string{}, map[string]string{}
	var missing []string
	for _, name := range podKeys {
		if r.VolumeContext[reservedPrefix+name] == "" {
			missing = append(missing, reservedPrefix+name)
		}
		if name != "ephemeral" {
			owner[name] = r.VolumeContext[reservedPrefix+name]
		}
	}
	switch {
	case len(missing) > 0:
		return nil, nil, fmt.Errorf("%w: an inline volume without %s: set podInfoOnMount in the CSIDriver object, so that "+
			"the kubelet vouches for the pod", backend.ErrInvalid, strings.Join(missing, ", "))
	case !inlineHandle.MatchString(r.VolumeID):
		return nil, nil, fmt.Errorf("%w: volume_id %.80q is not the handle of an inline volume (csi- and 64 hexadecimal "+
			"digits)", backend.ErrInvalid, r.VolumeID)
	case r.Capability.Block:
		return nil, nil, fmt.Errorf("%w: an inline volume cannot be raw block", backend.ErrInvalid)
	}
	for key, value := range r.VolumeContext {
		if !strings.HasPrefix(key, reservedPrefix) {
			attributes[key] = value
		}
	}
	return owner, attributes, nil
}

// ephemeral is the backend's inline half; ErrInvalid when it has none.
func (e *Engine) ephemeral() (backend.Ephemeral, error) {
	ephemeral, ok := e.backend.(backend.Ephemeral)
	if !ok {
		return nil, fmt.Errorf("%w: this backend has no inline volumes; use a PersistentVolumeClaim", backend.ErrInvalid)
	}
	return ephemeral, nil
}

// inlineVolume finds the volume of a handle; nil when there is none.
func (e *Engine) inlineVolume(ctx context.Context, handle string) (*backend.EphemeralVolume, error) {
	ephemeral, ok := e.backend.(backend.Ephemeral)
	if !ok {
		return nil, nil
	}
	volume, err := ephemeral.EphemeralByHandle(ctx, handle)
	if errors.Is(err, backend.ErrNotFound) {
		return nil, nil
	}
	if err != nil && volume.VolumeID == "" {
		return nil, err
	}
	return &volume, err
}

// publishInline makes and mounts the volume of a handle. After a failure it removes the
// volume before it returns the error: after a final error the kubelet forgets the
// volume.
func (e *Engine) publishInline(
	ctx context.Context, r PublishRequest, flags mount.Flags, owner, attributes map[string]string,
) error {
	ephemeral, err := e.ephemeral()
	if err != nil {
		return err
	}
	existing, err := e.inlineVolume(ctx, r.VolumeID)
	if err != nil {
		return err
	}
	if existing != nil {
		published, err := e.inlinePublished(ctx, *existing, r, flags)
		if err != nil && !errors.Is(err, backend.ErrExists) {
			err = uncertain(err) // the volume may well be in use
		}
		if published || err != nil {
			return err
		}
	}
	err = e.makeInline(ctx, ephemeral, r, flags, backend.EphemeralSpec{
		Handle: r.VolumeID, Target: r.TargetPath, Attributes: attributes, Owner: owner,
	})
	if err == nil {
		return nil
	}
	if undoErr := e.undoInline(ctx, ephemeral, r); undoErr != nil {
		return uncertain(fmt.Errorf("%w; and the volume could not be removed yet: %w", err, undoErr))
	}
	return err
}

// uncertain gives an error a code after which the kubelet repeats the call or
// unpublishes. After a final one it does neither, and the remains would stay until the
// next start. The class of the original error must stay hidden.
func uncertain(err error) error {
	return fmt.Errorf("%w: %s", backend.ErrUnavailable, err.Error())
}

// inlinePublished compares an existing volume of the handle with the request.
func (e *Engine) inlinePublished(
	ctx context.Context, volume backend.EphemeralVolume, r PublishRequest, flags mount.Flags,
) (bool, error) {
	if volume.Target != r.TargetPath {
		return false, fmt.Errorf("%w: the inline volume belongs to %s", backend.ErrExists, volume.Target)
	}
	devices, err := e.backend.Devices(ctx, volume.VolumeID)
	if err != nil {
		return false, err
	}
	node, err := e.open("target_path", r.TargetPath)
	if errors.Is(err, backend.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	if !node.MountRoot || !owns(node, devices) {
		return false, nil
	}
	readOnly, err := mountedReadOnly(node)
	if err != nil {
		return false, err
	}
	fsType, err := e.typeOf(node)
	if err != nil {
		return false, err
	}
	if readOnly != flags.ReadOnly() || (r.Capability.FSType != "" && r.Capability.FSType != fsType) {
		return false, fmt.Errorf("%w: the inline volume is published as %s, read-only = %t",
			backend.ErrExists, fsType, readOnly)
	}
	return true, nil
}

func (e *Engine) makeInline(
	ctx context.Context, ephemeral backend.Ephemeral, r PublishRequest, flags mount.Flags, spec backend.EphemeralSpec,
) error {
	target, err := e.targetPoint(r.TargetPath)
	if err != nil {
		return err
	}
	defer closeQuietly(target)
	if err := e.refuseOccupied(target); err != nil {
		return err
	}
	volume, err := ephemeral.CreateEphemeral(ctx, spec)
	if err != nil {
		return err
	}
	if err := e.points.Hit("node/inline/created"); err != nil {
		return err
	}
	device, err := e.openDevice(ctx, backend.DeviceRequest{VolumeID: volume.VolumeID})
	if err != nil {
		return err
	}
	defer func() { e.release(device) }()
	if err := e.points.Hit("node/inline/device"); err != nil {
		return err
	}
	tree, err := e.mountDetached(ctx, preparation{volumeID: volume.VolumeID, device: device,
		desired: r.Capability.FSType, flags: flags, point: "node/inline"})
	if err != nil {
		return err
	}
	defer closeQuietly(tree)
	if _, err := target.MakeDir(); err != nil {
		return err
	}
	if err := e.points.Hit("node/inline/made"); err != nil {
		return err
	}
	return e.attach(ctx, target, tree, "node/inline")
}

// refuseOccupied keeps an inline volume from being mounted over anything.
func (e *Engine) refuseOccupied(mountPoint *mount.Point) error {
	node, err := mountPoint.Open()
	if err != nil {
		return ignoreAbsent(err)
	}
	defer closeQuietly(node)
	if node.MountRoot {
		return occupied(mountPoint, node)
	}
	return nil
}

// undoInline removes every trace of a publish that failed. What cannot be
// removed is left to Unpublish and to Recover, which know it by its record.
func (e *Engine) undoInline(ctx context.Context, ephemeral backend.Ephemeral, r PublishRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	volume, err := ephemeral.EphemeralByHandle(ctx, r.VolumeID)
	if errors.Is(err, backend.ErrNotFound) {
		// Creation failed before there was a record; it may still have left some.
		return ephemeral.DeleteEphemeral(ctx, r.VolumeID)
	}
	if err != nil {
		return err
	}
	return e.removeInline(ctx, ephemeral, volume, "node/undo")
}

func (e *Engine) unpublishInline(
	ctx context.Context, volume *backend.EphemeralVolume, targetPath string, err error,
) error {
	if err != nil {
		return e.cleanUpInline(ctx, volume, targetPath, err)
	}
	ephemeral, err := e.ephemeral()
	if err != nil {
		return err
	}
	if volume.Target != targetPath {
		// The volume is published elsewhere; this target may be a leftover.
		return e.clearTarget(ctx, targetPath, nil, "node/unpublish")
	}
	return e.removeInline(ctx, ephemeral, *volume, "node/unpublish")
}

// cleanUpInline unmounts and detaches an inline volume that the backend cannot
// read or delete, because its storage failed. The pod must not wait for that: its
// volume is deleted by the next start that can, see Recover. Without a volume the
// error may pass, and the kubelet repeats the call.
func (e *Engine) cleanUpInline(
	ctx context.Context, volume *backend.EphemeralVolume, targetPath string, cause error,
) error {
	if volume == nil || ctx.Err() != nil {
		return cause
	}
	devices, err := e.backend.Devices(ctx, volume.VolumeID)
	if err != nil {
		return errors.Join(cause, err)
	}
	if err := e.clearTarget(ctx, targetPath, devices, "node/unpublish"); err != nil {
		return err
	}
	if err := e.backend.CloseDevice(ctx, volume.VolumeID); err != nil {
		return err
	}
	e.log.Error("an inline volume was taken down and not deleted", "volume", volume.Handle, "error", cause)
	return nil
}

// removeInline unmounts, detaches and deletes an inline volume and removes its
// path. It removes the record last. A foreign file or mount at the path is reported and
// does not prevent the deletion of the volume.
func (e *Engine) removeInline(
	ctx context.Context, ephemeral backend.Ephemeral, volume backend.EphemeralVolume, point string,
) error {
	devices, err := e.backend.Devices(ctx, volume.VolumeID)
	if err != nil {
		return err
	}
	mountPoint, err := e.paths.Resolve("target_path", volume.Target)
	var cleared error
	switch {
	case err == nil:
		defer closeQuietly(mountPoint)
		cleared = e.clear(ctx, mountPoint, devices, point)
	case !errors.Is(err, backend.ErrNotFound):
		cleared = err
	}
	// The backend refuses if, after all, the device is mounted.
	if err := e.backend.CloseDevice(ctx, volume.VolumeID); err != nil {
		return errors.Join(cleared, err)
	}
	if err := e.points.Hit(point + "/closed"); err != nil {
		return err
	}
	if err := ephemeral.DeleteEphemeral(ctx, volume.Handle); err != nil {
		return errors.Join(cleared, err)
	}
	if err := e.points.Hit(point + "/deleted"); err != nil {
		return err
	}
	if mountPoint == nil || cleared != nil {
		return cleared
	}
	return mountPoint.Remove()
}

// Recover removes the inline volumes that a crash or a reboot left without
// their mount; those that are mounted stay. One that cannot be removed now is
// logged and left to the next start or to its Unpublish; the error is that the
// volumes could not be listed.
func (e *Engine) Recover(ctx context.Context) error {
	ephemeral, ok := e.backend.(backend.Ephemeral)
	if !ok {
		return nil
	}
	volumes, err := ephemeral.Ephemerals(ctx)
	if errors.Is(err, backend.ErrUnavailable) && ctx.Err() == nil {
		e.log.Error("inline volumes that are not in use stay until the next start", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("recover inline volumes: %w", err)
	}
	for _, volume := range volumes {
		keys := []string{VolumeKey(volume.Handle), TargetKey(volume.Target)}
		err := e.calls.Run(ctx, "recover inline volume "+volume.Handle, keys, func(ctx context.Context) error {
			return e.recoverInline(ctx, ephemeral, volume)
		})
		if ctx.Err() != nil {
			return fmt.Errorf("recover inline volumes: %w", context.Cause(ctx))
		}
		if err != nil {
			e.log.Warn("an inline volume stays for now", "volume", volume.Handle, "target", volume.Target, "error", err)
		}
	}
	return nil
}

func (e *Engine) recoverInline(
	ctx context.Context, ephemeral backend.Ephemeral, volume backend.EphemeralVolume,
) error {
	devices, err := e.backend.Devices(ctx, volume.VolumeID)
	if err != nil {
		return err
	}
	if shown, err := e.isShown(volume.Target, devices); shown || err != nil {
		return err
	}
	if err := e.removeInline(ctx, ephemeral, volume, "node/recover"); err != nil {
		return err
	}
	e.log.Info("removed an inline volume that was not in use", "volume", volume.Handle, "target", volume.Target)
	return nil
}
