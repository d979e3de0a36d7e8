package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// markRecord is format.json.
type markRecord struct {
	Version int    `json:"version"`
	FSType  string `json:"fsType"`
	Done    bool   `json:"done"`
	// Resizing is the ID of the boot in which resize2fs was started.
	Resizing string `json:"resizing,omitempty"`
}

// FormatMark reads what mkfs and resize2fs were started for on a volume.
func (p *Pool) FormatMark(_ context.Context, id string) (backend.FormatMark, error) {
	if _, err := p.recordOnDisk(id); err != nil {
		return backend.FormatMark{}, err
	}
	return p.readMark(id)
}

func (p *Pool) readMark(id string) (backend.FormatMark, error) {
	data, err := readSmall(p.root, path.Join(volumePath(id), formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return backend.FormatMark{}, nil
	}
	if err != nil {
		return backend.FormatMark{}, classify(err)
	}
	var record markRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return backend.FormatMark{}, fmt.Errorf("%w: %s of volume %s cannot be read: %w",
			backend.ErrDataLoss, formatFile, id, err)
	}
	if record.Version > recordVersion {
		return backend.FormatMark{}, fmt.Errorf("%w: %s of volume %s has version %d, this Holdfast knows up to %d; use "+
			"the newer one", backend.ErrPrecondition, formatFile, id, record.Version, recordVersion)
	}
	mark := backend.FormatMark{FSType: record.FSType, Done: record.Done}
	if record.Resizing != "" {
		boot, err := bootID()
		if err != nil {
			return backend.FormatMark{}, err
		}
		mark.Resizing = record.Resizing == boot
	}
	return mark, nil
}

// SetFormatMark makes a mark durable. It waits for a snapshot of the volume: a clone
// inherits the mark that the volume has at that moment.
func (p *Pool) SetFormatMark(ctx context.Context, id string, mark backend.FormatMark) error {
	if _, err := p.recordOnDisk(id); err != nil {
		return err
	}
	lock, err := p.awaitLock(ctx, volumePath(id), unix.LOCK_EX)
	if err != nil {
		return classify(err)
	}
	defer lock.release()
	if err := p.writeMark(volumePath(id), mark); err != nil {
		return classify(err)
	}
	return p.points.Hit("local/format/marked")
}

func (p *Pool) writeMark(entry string, mark backend.FormatMark) error {
	record := markRecord{Version: recordVersion, FSType: mark.FSType, Done: mark.Done}
	if mark.Resizing {
		boot, err := bootID()
		if err != nil {
			return err
		}
		record.Resizing = boot
	}
	return p.writeRecord(entry, formatFile, record)
}

// keepMark gives a volume that is being made from another the mark of that: if
// it is ever blank, its content was lost.
func (p *Pool) keepMark(entry, formatted string) error {
	if formatted == "" {
		return nil
	}
	if err := p.writeMark(entry, backend.FormatMark{FSType: formatted, Done: true}); err != nil {
		return err
	}
	return p.points.Hit("local/create/mark")
}
