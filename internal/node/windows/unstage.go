package windows

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// Unstage undoes Stage, also an interrupted one: it flushes and unmounts the volume,
// removes the folder, and takes the disk offline, so that it can be detached. A missing
// path, an unknown volume, one that is not staged, and a missing disk are not errors.
// ErrInUse if a file of the volume is open. ErrPrecondition if another volume is mounted
// at the staging path; it stays mounted.
func (e *Engine) Unstage(ctx context.Context, volumeID, stagingPath string) error {
	if err := checkID(volumeID); err != nil {
		return err
	}
	staging, err := e.path("staging_target_path", stagingPath)
	if err != nil {
		return err
	}
	return e.calls.Run(ctx, "unstage volume "+volumeID, []string{node.VolumeKey(volumeID)}, func(ctx context.Context) error {
		return e.unstage(ctx, volumeID, staging)
	})
}

func (e *Engine) unstage(ctx context.Context, volumeID, staging string) error {
	there, err := e.at(ctx, volumeID, staging, nil)
	if err != nil {
		return err
	}
	if there.disk != nil && !there.matches {
		return occupied(staging, there)
	}
	exists, err := e.host.Filesystem.PathExists(ctx, staging)
	if err != nil {
		return err
	}
	intended, err := e.intents.exists(ctx, volumeID)
	if err != nil || !exists && !intended {
		return err
	}
	if there.matches {
		if err := e.unmount(ctx, there.volume, staging); err != nil {
			return err
		}
	}
	last, err := e.intents.withdraw(ctx, volumeID, staging)
	if err != nil {
		return err
	}
	if err := e.points.Hit("winnode/unstage/withdrawn"); err != nil {
		return err
	}
	if !last { // staged at another path too, which needs the disk
		e.log.InfoContext(ctx, "the volume has an intent for another staging path; its disk stays online",
			"volume", volumeID, "path", staging)
		return e.removeStaging(ctx, staging)
	}
	if err := e.offline(ctx, volumeID, there.volume); err != nil {
		return err
	}
	if err := e.removeStaging(ctx, staging); err != nil {
		return err
	}
	return e.intents.forget(ctx, volumeID)
}

// unmount flushes the volume and removes its folder.
func (e *Engine) unmount(ctx context.Context, volume, staging string) error {
	if err := e.host.Volumes.Unmount(ctx, volume, staging); err != nil {
		return fmt.Errorf("unmount %s: %w", volume, err)
	}
	return e.points.Hit("winnode/unstage/unmounted")
}

// removeStaging removes the staging directory, or the mounted folder of a disk
// that is gone. A directory with files on which nothing is mounted stays.
func (e *Engine) removeStaging(ctx context.Context, staging string) error {
	err := e.host.Filesystem.Rmdir(ctx, staging, false)
	if errors.Is(err, backend.ErrPrecondition) {
		e.log.WarnContext(ctx, "the staging directory has files and is not removed", "path", staging, "error", err)
		return nil
	}
	if err := absent(err); err != nil {
		return fmt.Errorf("remove the staging directory: %w", err)
	}
	return e.points.Hit("winnode/unstage/removed")
}

// offline takes the volume's disk offline, if this machine has it online. It finds
// the disk again: its number may have changed since the unmount.
func (e *Engine) offline(ctx context.Context, volumeID, volume string) error {
	disk, err := e.find(ctx, volumeID, nil)
	if errors.Is(err, errAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	if volume != "" {
		number, err := e.host.Volumes.DiskOf(ctx, volume)
		if absent(err) != nil {
			return fmt.Errorf("disk of %s: %w", volume, err)
		}
		if err == nil && number != disk.Number {
			return renumbered(number)
		}
	}
	if !disk.Online {
		return nil
	}
	if err := e.host.Disks.SetOnline(ctx, disk.Number, disk.Identity(), false); err != nil {
		return fmt.Errorf("take disk %d offline: %w", disk.Number, err)
	}
	return e.points.Hit("winnode/unstage/offline")
}
