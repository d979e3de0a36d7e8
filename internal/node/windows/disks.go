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

// errAbsent means that all disks answered and none is the volume's, errUnread that
// none of those that answered is.
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
		return api.Disk{}, fmt.Errorf("%w: disks %d and %d both say that they are the volume; detach one",
			backend.ErrPrecondition, found[0].Number, found[1].Number)
	case len(found) == 0 && len(broken) > 0:
		return api.Disk{}, fmt.Errorf("%w: %w, and others could not be read; detach a disk that stays so: %w",
			backend.ErrUnavailable, errUnread, errors.Join(broken...))
	case len(found) == 0:
		return api.Disk{}, errAbsent
	case found[0].Problem != nil:
		return api.Disk{}, fmt.Errorf("%w: disk %d cannot be read: %w", backend.ErrUnavailable, found[0].Number, found[0].Problem)
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

// await polls find until the disk is there, or e.wait is over: an attachment is
// complete for the cloud before Windows shows the disk, and Windows may need a rescan.
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
			return api.Disk{}, fmt.Errorf("%w: %w after %v; is it attached to this instance?", backend.ErrUnavailable, err, e.wait)
		case concurrency.Sleep(ctx, e.interval) != nil:
			return api.Disk{}, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// shown is the volume that a path leads to.
type shown struct {
	volume string    // of Windows; "" when nothing is mounted there
	disk   *api.Disk // that it is on; nil if this machine no longer has it
	ours   bool      // the disk is the volume's
}

// at inspects a path: a mounted folder or a link to one.
func (e *Engine) at(ctx context.Context, volumeID, path string, publishContext map[string]string) (shown, error) {
	volume, err := e.host.Volumes.At(ctx, path)
	if err != nil {
		return shown{}, absent(err)
	}
	s := shown{volume: volume}
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
		return s, fmt.Errorf("%w: disk %d, which is at %s, is not listed: %w", backend.ErrUnavailable, number, path, unread(disks[numberless]))
	}
	for _, disk := range disks {
		if disk.Number != number {
			continue
		}
		s.disk, s.ours = &disk, e.backend.IsVolume(volumeID, publishContext, disk)
		if !s.ours && disk.Problem != nil { // the volume's disk may be slow
			return s, fmt.Errorf("%w: disk %d, which is at %s, does not say whose it is: %w", backend.ErrUnavailable, number, path, disk.Problem)
		}
	}
	return s, nil
}

// verify checks that a volume of Windows is on the disk of the CSI volume: since
// find, the number may have become another disk's.
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
	return fmt.Errorf("%w: disk %d became another one meanwhile; repeat the call, which finds the disk anew", backend.ErrUnavailable, number)
}

// occupied returns the error for a path that shows another volume.
func occupied(path string, s shown) error {
	what := "whose disk is gone"
	if s.disk != nil {
		what = fmt.Sprintf("on disk %d (serial number %q)", s.disk.Number, s.disk.SerialNumber)
	}
	return fmt.Errorf("%w: %s shows %s %s, which is not this volume; if it is not needed, unmount it by hand: mountvol %s /D",
		backend.ErrPrecondition, path, s.volume, what, path)
}

// sameVolume compares two IDs of volumes, with or without the last backslash.
func sameVolume(a, b string) bool {
	return a != "" && strings.EqualFold(strings.TrimSuffix(a, `\`), strings.TrimSuffix(b, `\`))
}
