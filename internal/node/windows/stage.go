package windows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// ntfs is the filesystem of volumes, as Windows writes it.
const ntfs = "NTFS"

// checkCapability rejects what Windows lacks.
func checkCapability(c backend.Capability, readOnly bool) error {
	switch {
	case c.Block:
		return fmt.Errorf("%w: Windows has no raw block volumes; use volumeMode Filesystem", backend.ErrInvalid)
	case c.FSType != "" && !strings.EqualFold(c.FSType, ntfs):
		return fmt.Errorf("%w: filesystem type %q; volumes of Windows nodes have ntfs: set csi.storage.k8s.io/fstype in "+
			"their StorageClass", backend.ErrInvalid, c.FSType)
	case len(c.MountFlags) > 0:
		return fmt.Errorf("%w: Windows has no mount flags; take %s out of mountOptions", backend.ErrInvalid,
			strings.Join(c.MountFlags, ","))
	case c.MountGroup != "":
		return fmt.Errorf("%w: Windows has no mount group", backend.ErrInvalid)
	case readOnly || c.Mode == backend.SingleNodeReaderOnly || c.Mode == backend.MultiNodeReaderOnly:
		// A link has no mode, and the disk's would apply to all targets.
		return fmt.Errorf("%w: a volume of a Windows node cannot be published read-only; set readOnly on the volumeMount "+
			"of the container instead, which the container runtime enforces", backend.ErrPrecondition)
	}
	return nil
}

// Stage mounts the volume's filesystem at the staging path, as large as the disk. It makes
// the partition and the filesystem if the disk is blank. Repeating it changes nothing.
//
// ErrInvalid: an invalid path, filesystem type or mount flag, or raw block. ErrNotFound:
// the ID cannot be that of a volume. ErrPrecondition: another volume is mounted there, the
// disk has data of another kind, or the request is read-only.
// ErrUnavailable: the disk does not appear. ErrBusy: another call is running.
func (e *Engine) Stage(ctx context.Context, r node.StageRequest) error {
	if err := checkID(r.VolumeID); err != nil {
		return err
	}
	staging, err := e.path("staging_target_path", r.StagingPath)
	if err != nil {
		return err
	}
	if err := checkCapability(r.Capability, false); err != nil {
		return err
	}
	if err := e.backend.CheckID(r.VolumeID); err != nil {
		return err
	}
	return e.calls.Run(ctx, "stage volume "+r.VolumeID, []string{node.VolumeKey(r.VolumeID)}, func(ctx context.Context) error {
		return e.stage(ctx, r, staging)
	})
}

func (e *Engine) stage(ctx context.Context, r node.StageRequest, staging string) error {
	there, err := e.at(ctx, r.VolumeID, staging, r.PublishContext)
	if err != nil {
		return err
	}
	volume := there.volume
	switch {
	case volume == "":
		volume, err = e.mount(ctx, r, staging)
	case !there.matches:
		err = occupied(staging, there)
	default: // staged, perhaps by a version or a driver that wrote no intent
		err = e.intents.write(ctx, r.VolumeID, staging)
	}
	if err != nil {
		return err
	}
	return e.fill(ctx, r.VolumeID, volume)
}

// mount finds the disk, partitions and formats it if it is blank, and mounts its
// volume.
func (e *Engine) mount(ctx context.Context, r node.StageRequest, staging string) (volume string, err error) {
	disk, err := e.await(ctx, r.VolumeID, r.PublishContext)
	if err != nil {
		return "", err
	}
	if err := e.points.Hit("winnode/stage/found"); err != nil {
		return "", err
	}
	// The intent comes first: while it exists, Unstage knows that the disk may be
	// online.
	if err := e.intents.write(ctx, r.VolumeID, staging); err != nil {
		return "", err
	}
	if err := e.points.Hit("winnode/stage/intended"); err != nil {
		return "", err
	}
	if err := e.host.Filesystem.Mkdir(ctx, staging); err != nil {
		return "", fmt.Errorf("make the staging directory: %w", err)
	}
	if err := e.points.Hit("winnode/stage/made"); err != nil {
		return "", err
	}
	if volume, err = e.partition(ctx, disk); err != nil {
		return "", fmt.Errorf("disk %d: %w", disk.Number, err)
	}
	if err := e.verify(ctx, r.VolumeID, r.PublishContext, volume); err != nil {
		return "", err
	}
	if err := e.format(ctx, volume); err != nil {
		return "", fmt.Errorf("disk %d: %w", disk.Number, err)
	}
	if err := e.host.Volumes.Mount(ctx, volume, staging); err != nil {
		return "", fmt.Errorf("mount %s: %w", volume, err)
	}
	if err := e.points.Hit("winnode/stage/mounted"); err != nil {
		return "", err
	}
	there, err := e.at(ctx, r.VolumeID, staging, r.PublishContext)
	if err == nil && (!there.matches || !sameVolume(there.volume, volume)) {
		err = fmt.Errorf("%w: mounting %s at %s succeeded, but %q is there", backend.ErrUnavailable, volume,
			staging, there.volume)
	}
	return volume, err
}

// partition brings the disk online and returns its volume. A blank disk gets a
// partition; a disk with partitions stays as it is.
func (e *Engine) partition(ctx context.Context, disk api.Disk) (string, error) {
	if !disk.Online || disk.ReadOnly {
		if err := e.host.Disks.SetOnline(ctx, disk.Number, disk.Identity(), true); err != nil {
			return "", fmt.Errorf("bring it online: %w", err)
		}
		if err := e.points.Hit("winnode/stage/online"); err != nil {
			return "", err
		}
	}
	volume, err := e.host.Disks.Partition(ctx, disk.Number, disk.Identity())
	if err != nil {
		return "", fmt.Errorf("partition it: %w", err)
	}
	if volume == "" {
		return "", fmt.Errorf("%w: it has partitions but no data volume; it is not partitioned again: make one, or erase "+
			"the disk if its data is not needed", backend.ErrPrecondition)
	}
	return volume, e.points.Hit("winnode/stage/partitioned")
}

// format makes the filesystem on a raw volume. The host itself rejects a volume that is
// not blank.
func (e *Engine) format(ctx context.Context, volume string) error {
	found, err := e.host.Volumes.FileSystem(ctx, volume)
	if err != nil {
		return fmt.Errorf("filesystem of %s: %w", volume, err)
	}
	if found == "" {
		if err := e.host.Volumes.Format(ctx, volume, ntfs); err != nil {
			return fmt.Errorf("format %s: %w", volume, err)
		}
		if err := e.points.Hit("winnode/stage/formatted"); err != nil {
			return err
		}
		if found, err = e.host.Volumes.FileSystem(ctx, volume); err != nil {
			return fmt.Errorf("filesystem of %s: %w", volume, err)
		}
	}
	if !strings.EqualFold(found, ntfs) {
		return fmt.Errorf("%w: %s has a filesystem %q, not ntfs; it is not formatted again",
			backend.ErrPrecondition, volume, found)
	}
	return nil
}

// fill grows partition and filesystem to the disk, as after a restore into a larger volume,
// an expansion while it was not staged, or a crash between the growth of the two. The host
// compares the three sizes. If a partition cannot grow, or not yet, Stage succeeds
// nevertheless: access to the data is more important than its size. NodeExpandVolume
// fails, and is repeated until the volume has grown.
func (e *Engine) fill(ctx context.Context, volumeID, volume string) error {
	_, err := e.host.Volumes.Resize(ctx, volume, 0)
	if errors.Is(err, backend.ErrPrecondition) || errors.Is(err, backend.ErrUnavailable) {
		e.log.WarnContext(ctx, "a volume stays smaller than its disk", "volume", volumeID, "error", err)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("grow %s to its disk: %w", volume, err)
	}
	return e.points.Hit("winnode/stage/grown")
}
