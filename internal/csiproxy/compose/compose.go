// Package compose makes the operations of the KEP that are several of the host's:
// formatting and mounting a volume, mounting a LUN. All versions of its API share
// them.
//
// The steps keep no state: each inspects the machine, so that the repetition of an
// interrupted call completes it. All checks come before the first change.
package compose

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Operations are shared by all versions that one process serves, so that calls
// of different versions know of each other.
type Operations struct {
	locks concurrency.Locks
	// Wait is how long the disk of a LUN is waited for, and Poll how often it is
	// looked for.
	Wait, Poll time.Duration
}

// New returns the operations with the timeouts of a real machine: a disk
// arrives within seconds of the login.
func New() *Operations { return &Operations{Wait: 15 * time.Second, Poll: 250 * time.Millisecond} }

// lock refuses a second operation on the same thing, which would act on what the
// first is about to change.
func (o *Operations) lock(thing string) (unlock func(), err error) {
	unlock, ok := o.locks.TryLock(thing)
	if !ok {
		return nil, fmt.Errorf("%w: another call works on %s; repeat it later", backend.ErrBusy, thing)
	}
	return unlock, nil
}

// Partition is api.Disks.Partition for versions that cannot bring a disk online
// otherwise: the disk is online afterwards and the volume never missing.
func (o *Operations) Partition(ctx context.Context, host api.Host, disk uint32) (volumeID string, err error) {
	disks, volumes := host.Disks, host.Volumes
	if volumeID, err = disks.Partition(ctx, disk, api.Identity{}); err != nil {
		return "", err
	}
	online, err := disks.Online(ctx, disk)
	if err != nil {
		return "", err
	}
	if !online {
		if err := disks.SetOnline(ctx, disk, api.Identity{}, true); err != nil {
			return "", err
		}
	}
	if volumeID != "" {
		return volumeID, nil
	}
	if volumeID, err = disks.Partition(ctx, disk, api.Identity{}); err != nil {
		return "", err
	}
	if volumeID != "" {
		return volumeID, nil
	}
	all, err := volumes.OnDisk(ctx, disk, 0)
	if err != nil {
		return "", err
	}
	if len(all) == 0 || all[0] == "" {
		return "", fmt.Errorf("%w: disk %d has partitions, and none with a volume", backend.ErrPrecondition, disk)
	}
	return all[0], nil
}

// Format asks for a volume to be formatted and mounted.
type Format struct {
	VolumeID string
	// FileSystem is "" or such as "NTFS"; see FormatVolume.
	FileSystem string
	// Path is where it is mounted; "" mounts nowhere.
	Path string
}

// FormatVolume formats a volume that is raw, and mounts it. One that has a file
// system is mounted as it is, unless another file system was asked for, which is
// ErrPrecondition. It reports whether this call has formatted.
func (o *Operations) FormatVolume(ctx context.Context, host api.Host, f Format) (formatted bool, err error) {
	if f.VolumeID == "" {
		return false, fmt.Errorf("%w: volume_id is missing", backend.ErrInvalid)
	}
	unlock, err := o.lock("volume " + canonical(f.VolumeID))
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := host.Volumes.FileSystem(ctx, f.VolumeID)
	// An interrupted format can look like a damaged filesystem. The host formats it
	// again only if a record shows that it had begun, and returns the error otherwise.
	if err != nil && !errors.Is(err, backend.ErrDataLoss) {
		return false, err
	}
	if now != "" && f.FileSystem != "" && !strings.EqualFold(now, f.FileSystem) {
		return false, fmt.Errorf("%w: volume %s has the file system %s, not %s; it is left alone",
			backend.ErrPrecondition, f.VolumeID, now, f.FileSystem)
	}
	if f.Path != "" {
		if err := prepare(ctx, host, f); err != nil {
			return false, err
		}
	}
	if now == "" {
		if err := host.Volumes.Format(ctx, f.VolumeID, f.FileSystem); err != nil {
			return false, err
		}
		formatted = true
	}
	if f.Path != "" {
		if err := host.Volumes.Mount(ctx, f.VolumeID, f.Path); err != nil {
			return formatted, err
		}
	}
	return formatted, nil
}

// FormatAndMount is FormatVolume for versions where a path is not optional.
func (o *Operations) FormatAndMount(ctx context.Context, host api.Host, f Format) (formatted bool, err error) {
	if f.Path == "" {
		return false, fmt.Errorf("%w: staging_path is missing", backend.ErrInvalid)
	}
	return o.FormatVolume(ctx, host, f)
}

// MountChecker is a host that can check before a mount whether Mount would reject
// a directory.
type MountChecker interface {
	// CheckMount returns the error with which Mount would reject the directory as it
	// is now, and changes nothing.
	CheckMount(ctx context.Context, volumeID, path string) error
}

// prepare refuses a path where the volume cannot be mounted, and makes the
// directory when it is missing.
func prepare(ctx context.Context, host api.Host, f Format) error {
	mounted, err := host.Volumes.At(ctx, f.Path)
	switch {
	case err == nil && canonical(mounted) == canonical(f.VolumeID):
		return nil
	case err == nil:
		return fmt.Errorf("%w: volume %s is mounted at %s, not %s", backend.ErrPrecondition, mounted, f.Path, f.VolumeID)
	case !errors.Is(err, backend.ErrNotFound):
		return err
	}
	if err := host.Filesystem.Mkdir(ctx, f.Path); err != nil {
		return err
	}
	if checker, ok := host.Volumes.(MountChecker); ok {
		return checker.CheckMount(ctx, f.VolumeID, f.Path)
	}
	return nil
}

// canonical makes the spellings of a volume's ID comparable.
func canonical(volumeID string) string {
	return strings.ToLower(strings.TrimSuffix(volumeID, `\`))
}

// MountSMBShare mounts a share for versions where a path is not optional.
func MountSMBShare(ctx context.Context, host api.Host, mount api.SMBMount) error {
	if mount.Local == "" {
		return fmt.Errorf("%w: staging_path is missing", backend.ErrInvalid)
	}
	return host.SMB.Mount(ctx, mount)
}

// UnmountSMBShare is the reverse of MountSMBShare.
func UnmountSMBShare(ctx context.Context, host api.Host, remote, local string) error {
	if local == "" {
		return fmt.Errorf("%w: staging_path is missing", backend.ErrInvalid)
	}
	return host.SMB.Unmount(ctx, remote, local)
}

// Mkdir refuses the empty path itself: with that clients find out whether it is
// csi-proxy that they talk to, and no host needs to be asked.
func Mkdir(ctx context.Context, host api.Host, path string) error {
	if path == "" {
		return fmt.Errorf("%w: path is missing", backend.ErrInvalid)
	}
	return host.Filesystem.Mkdir(ctx, path)
}
