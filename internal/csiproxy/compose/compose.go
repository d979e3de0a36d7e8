// Package compose has the operations of the KEP that consist of several operations of a
// host: formatting and mounting a volume, mounting a LUN. All versions of its API share
// them.
//
// The steps keep no state: each inspects the machine, so that a repeated call completes
// an interrupted one. All checks precede the first change.
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

// Operations are shared by all versions that one process serves, so that calls of
// different versions exclude each other.
type Operations struct {
	locks concurrency.Locks
	// Wait bounds the wait for the disk of a LUN; Poll is the time between two polls.
	Wait, Poll time.Duration
}

// New returns the operations with the timeouts of a real machine: a disk
// arrives within seconds of the login.
func New() *Operations { return &Operations{Wait: 15 * time.Second, Poll: 250 * time.Millisecond} }

// lock rejects a second operation on the same object, which would act on a state that the
// first is about to change.
func (o *Operations) lock(thing string) (unlock func(), err error) {
	unlock, ok := o.locks.TryLock(thing)
	if !ok {
		return nil, fmt.Errorf("%w: another call works on %s; repeat it later", backend.ErrBusy, thing)
	}
	return unlock, nil
}

// Partition is api.Disks.Partition for versions without a call that brings a disk online:
// on success the disk is online and has a volume.
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
		return "", fmt.Errorf("%w: disk %d has partitions, but none with a volume", backend.ErrPrecondition, disk)
	}
	return all[0], nil
}

// Format asks for a volume to be formatted and mounted.
type Format struct {
	VolumeID string
	// FileSystem is a name such as "NTFS", or ""; see FormatVolume.
	FileSystem string
	// Path is the mount point; "" for none.
	Path string
}

// FormatVolume formats a raw volume and mounts it. It mounts a volume that has a
// filesystem as it is; if the request names another filesystem, that is ErrPrecondition.
// It reports whether this call has formatted the volume.
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
		return false, fmt.Errorf("%w: volume %s has the filesystem %s, not %s; it was not changed",
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

// MountChecker is a host that can check before a mount whether Mount would reject
// a directory.
type MountChecker interface {
	// CheckMount returns the error with which Mount would reject the directory as it
	// is now, and changes nothing.
	CheckMount(ctx context.Context, volumeID, path string) error
}

// prepare rejects a path at which the volume cannot be mounted, and makes a missing
// directory.
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

// Mkdir rejects the empty path itself: clients send it to find out whether csi-proxy
// serves the pipe, which needs no host.
func Mkdir(ctx context.Context, host api.Host, path string) error {
	if path == "" {
		return fmt.Errorf("%w: path is missing", backend.ErrInvalid)
	}
	return host.Filesystem.Mkdir(ctx, path)
}
