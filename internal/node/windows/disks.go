package windows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// errAbsent means that all disks answered and none is the volume's; errUnread, that some
// did not answer and none of the others is.
var (
	errAbsent = errors.New("no disk of this machine is the volume's")
	errUnread = errors.New("no disk that could be read is the volume's")
)

// find returns the volume's disk: errAbsent if there is none, errUnread if a disk
// that could not be identified may be the volume's. Numbers of disks change, so it
// is called for each step.
func (e *Engine) find(ctx context.Context, volumeID string, publishContext map[string]string) (api.Disk, error) {
	disks, err := e.host.Disks.List(ctx)
	if err != nil {
		return api.Disk{}, fmt.Errorf("list the disks: %w", err)
	}
	var found []api.Disk
	var broken []error
	for _, disk := range disks {
		switch {
		case e.backend.IsVolume(volumeID, publishContext, disk):
			found = append(found, disk)
		case disk.IsUnidentified():
			broken = append(broken, unread(disk))
		}
	}
	switch {
	case len(found) > 1:
		return api.Disk{}, fmt.Errorf("%w: disks %d and %d both have the identity of the volume; detach one",
			backend.ErrPrecondition, found[0].Number, found[1].Number)
	case len(found) == 0 && len(broken) > 0:
		return api.Disk{}, fmt.Errorf("%w: %w, and others could not be read; detach a disk that stays unreadable: %w",
			backend.ErrUnavailable, errUnread, errors.Join(broken...))
	case len(found) == 0:
		return api.Disk{}, errAbsent
	case found[0].Problem != nil:
		return api.Disk{}, fmt.Errorf("%w: disk %d cannot be read: %w", backend.ErrUnavailable,
			found[0].Number, found[0].Problem)
	}
	return found[0], nil
}

// unread returns why a disk could not be identified.
func unread(disk api.Disk) error {
	if disk.Number == api.UnknownNumber {
		return fmt.Errorf("a disk without a known number: %w", disk.Problem)
	}
	return fmt.Errorf("disk %d: %w", disk.Number, disk.Problem)
}

// await polls find until the disk appears, at most for e.wait: the cloud reports an
// attachment as complete before Windows lists the disk, and Windows may need a rescan.
func (e *Engine) await(ctx context.Context, volumeID string, publishContext map[string]string) (api.Disk, error) {
	deadline := time.Now().Add(e.wait)
	for rescanned := false; ; {
		disk, err := e.find(ctx, volumeID, publishContext)
		switch {
		case !errors.Is(err, errAbsent) && !errors.Is(err, errUnread):
			return disk, err
		case !rescanned:
			rescanned = true
			if err := e.host.Disks.Rescan(ctx); err != nil {
				return api.Disk{}, fmt.Errorf("rescan for new disks: %w", err)
			}
			continue
		case time.Now().After(deadline):
			return api.Disk{}, fmt.Errorf("%w: %w after %v; is it attached to this instance?",
				backend.ErrUnavailable, err, e.wait)
		case concurrency.Sleep(ctx, e.interval) != nil:
			return api.Disk{}, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// mounted is the volume of Windows that a path leads to.
type mounted struct {
	volume  string    // "" if none is mounted
	disk    *api.Disk // its disk; nil if this machine no longer has it
	matches bool      // the disk is that of the CSI volume
}

// at inspects a path: a mounted folder or a link to one.
func (e *Engine) at(ctx context.Context, volumeID, path string, publishContext map[string]string) (mounted, error) {
	volume, err := e.host.Volumes.At(ctx, path)
	if err != nil {
		return mounted{}, absent(err)
	}
	s := mounted{volume: volume}
	number, err := e.host.Volumes.DiskOf(ctx, volume)
	if err != nil {
		return s, absent(err)
	}
	disks, err := e.host.Disks.List(ctx)
	if err != nil {
		return s, fmt.Errorf("list the disks: %w", err)
	}
	numberless := slices.IndexFunc(disks, func(d api.Disk) bool { return d.Number == api.UnknownNumber })
	if numberless >= 0 && !slices.ContainsFunc(disks, func(d api.Disk) bool { return d.Number == number }) {
		return s, fmt.Errorf("%w: disk %d, which is mounted at %s, is not listed: %w",
			backend.ErrUnavailable, number, path, unread(disks[numberless]))
	}
	for _, disk := range disks {
		if disk.Number != number {
			continue
		}
		s.disk, s.matches = &disk, e.backend.IsVolume(volumeID, publishContext, disk)
		if !s.matches && disk.Problem != nil { // the volume's disk may be slow
			return s, fmt.Errorf("%w: disk %d, which is mounted at %s, cannot be identified: %w",
				backend.ErrUnavailable, number, path, disk.Problem)
		}
	}
	return s, nil
}

// verify checks that a volume of Windows is on the disk of the CSI volume: the number that
// find returned may be another disk's now.
func (e *Engine) verify(ctx context.Context, volumeID string, publishContext map[string]string, volume string) error {
	number, err := e.host.Volumes.DiskOf(ctx, volume)
	if err != nil {
		return fmt.Errorf("disk of %s: %w", volume, err)
	}
	disk, err := e.find(ctx, volumeID, publishContext)
	if err == nil && disk.Number == number {
		return nil
	}
	if err != nil && !errors.Is(err, errAbsent) {
		return err
	}
	return renumbered(number)
}

// renumbered is the error for a number that belongs to another disk now.
func renumbered(number uint32) error {
	return fmt.Errorf("%w: disk %d is another disk now; repeat the call, which finds the volume's disk again",
		backend.ErrUnavailable, number)
}

// occupied is the error for a path at which another volume is mounted.
func occupied(path string, s mounted) error {
	what := "whose disk is gone"
	if s.disk != nil {
		what = fmt.Sprintf("on disk %d (serial number %q)", s.disk.Number, s.disk.SerialNumber)
	}
	return fmt.Errorf("%w: %s leads to %s %s, which is not this volume; if it is not needed, unmount it by hand: mountvol %s /D",
		backend.ErrPrecondition, path, s.volume, what, path)
}

// sameVolume compares two IDs of volumes, with or without the last backslash.
func sameVolume(a, b string) bool {
	return a != "" && strings.EqualFold(strings.TrimSuffix(a, `\`), strings.TrimSuffix(b, `\`))
}
