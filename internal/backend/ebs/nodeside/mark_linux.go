package nodeside

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

var _ backend.FormatRecorder = (*Node)(nil)

// FormatMark returns the mark of the volume in its present attachment. It ignores a mark
// from before a detachment or a reboot: another machine may have written to the volume
// since, and the mark "only mkfs has written to this volume" would let the engine format
// it. Without a disk sequence number, attachments cannot be distinguished, and no mark is
// kept.
func (n *Node) FormatMark(_ context.Context, handle string) (backend.FormatMark, error) {
	id, err := n.volumeOf(handle)
	if id == "" || err != nil {
		return backend.FormatMark{}, err
	}
	found, err := n.records.read(id, markSuffix)
	if found == nil || err != nil {
		return backend.FormatMark{}, err
	}
	serial, err := serialOf(id)
	if err != nil {
		return backend.FormatMark{}, err
	}
	d, err := n.findDisk(request{volumeID: id, serial: serial})
	if d == nil || err != nil {
		return backend.FormatMark{}, err
	}
	now, err := n.appearanceOf(*d)
	if errors.Is(err, errChanged) {
		return backend.FormatMark{}, nil
	}
	if err != nil {
		return backend.FormatMark{}, err
	}
	if now.Sequence == 0 || now != found.Disk {
		n.options.Logger.Info("removing the format mark of an earlier attachment",
			"volume", id, "marked", found.Disk, "now", now)
		return backend.FormatMark{}, n.records.remove(id, markSuffix)
	}
	if !n.isOpened(id, *d, found.Device) {
		return backend.FormatMark{}, nil // the mark is of another partition
	}
	return backend.FormatMark{FSType: found.FSType, Done: found.Done, Resizing: found.Resizing}, nil
}

// isOpened reports whether a device number is that of the disk or partition as which the
// volume was opened. If it was not opened, any device of the disk will do.
func (n *Node) isOpened(id string, d disk, number uint64) bool {
	n.mu.Lock()
	opened, ok := n.opened[id]
	n.mu.Unlock()
	if ok {
		return number == opened.number
	}
	if number == d.number {
		return true
	}
	partitions, err := n.sys.partitions(d.name)
	if err != nil {
		return false
	}
	for _, p := range partitions {
		if p.number == number {
			return true
		}
	}
	return false
}

// SetFormatMark records a mark for the present attachment of the volume. ErrPrecondition
// if the volume is not attached.
func (n *Node) SetFormatMark(_ context.Context, handle string, mark backend.FormatMark) error {
	id, err := n.volumeOf(handle)
	if err != nil {
		return err
	}
	serial, err := serialOf(id)
	if err != nil {
		return err
	}
	if mark == (backend.FormatMark{}) {
		return n.records.remove(id, markSuffix)
	}
	d, err := n.findDisk(request{volumeID: id, serial: serial})
	if err != nil {
		return err
	}
	if d == nil {
		return fmt.Errorf("%w: volume %s is not attached to this instance", backend.ErrPrecondition, id)
	}
	now, err := n.appearanceOf(*d)
	if err != nil {
		return err
	}
	if now.Sequence == 0 {
		return n.records.remove(id, markSuffix)
	}
	number := d.number
	n.mu.Lock()
	if opened, ok := n.opened[id]; ok {
		number = opened.number
	}
	n.mu.Unlock()
	return n.records.write(id, markSuffix, record{
		Disk: now, Device: number, FSType: mark.FSType, Done: mark.Done, Resizing: mark.Resizing}, true)
}

// appearanceOf returns the identity of the present appearance of a disk.
func (n *Node) appearanceOf(d disk) (appearance, error) {
	file, err := n.open(target{disk: d, name: d.name, number: d.number})
	if err != nil {
		return appearance{}, err
	}
	sequence, err := diskSequence(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return appearance{}, err
	}
	return appearance{Boot: n.records.boot, Sequence: sequence, Number: d.number}, nil
}
