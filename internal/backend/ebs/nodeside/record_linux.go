package nodeside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// appearance is one appearance of a disk on this machine: from the attachment of the
// volume, or the boot, until its detachment. A record about the blocks of a volume, or
// about a disk without a serial number, is valid for that appearance only, because
// another machine may have changed the volume since.
type appearance struct {
	Boot     string `json:"boot"`               // /proc/sys/kernel/random/boot_id
	Sequence uint64 `json:"sequence,omitempty"` // see diskSequence
	Number   uint64 `json:"number"`             // st_rdev of the disk
}

// recordVersion is increased if an older program must not read the file.
const recordVersion = 1

// record is a record about a volume that is attached to this machine.
type record struct {
	Version int        `json:"version"`
	Disk    appearance `json:"disk"`
	// Xen is the disk's name, for disks without a serial number.
	Xen string `json:"xen,omitempty"`
	// Volume is what the handle of a node-local volume means.
	Volume string `json:"volume,omitempty"`
	// Device and the following fields are the format mark of a device.
	Device   uint64 `json:"device,omitempty"`
	FSType   string `json:"fsType,omitempty"`
	Done     bool   `json:"done,omitempty"`
	Resizing bool   `json:"resizing,omitempty"`
}

// The kinds of records, in separate files. Marks decide whether mkfs runs, and are synced
// to the disk; claims are hints, and are not.
const (
	claimSuffix = ".claim.json"
	markSuffix  = ".mark.json"
)

// records is the state directory. Without a path it has no records.
type records struct {
	path string
	boot string

	mu   sync.Mutex
	root *os.Root // nil until something is written, or found
}

// open returns the directory; nil if it does not exist and mkdir is false.
func (r *records) open(mkdir bool) (*os.Root, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root != nil || r.path == "" {
		return r.root, nil
	}
	if mkdir {
		if err := os.MkdirAll(r.path, 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	root, err := os.OpenRoot(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	r.root = root
	return root, nil
}

func (r *records) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root == nil {
		return nil
	}
	err := r.root.Close()
	r.root = nil
	return err
}

// read returns a volume's record; nil if it has none of this boot. A record that cannot
// be parsed is ignored: without it, the engine formats only a volume that is proven
// blank.
func (r *records) read(id, suffix string) (*record, error) {
	root, err := r.open(false)
	if root == nil || err != nil {
		return nil, err
	}
	data, err := root.ReadFile(id + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of volume %s: %w", id, err)
	}
	var found record
	readable := json.Unmarshal(data, &found) == nil && found.Version <= recordVersion
	if !readable || found.Disk.Boot != r.boot {
		return nil, nil
	}
	return &found, nil
}

// write replaces a volume's record, durably if asked.
func (r *records) write(id, suffix string, content record, durably bool) error {
	root, err := r.open(true)
	if root == nil || err != nil {
		return err
	}
	content.Version, content.Disk.Boot = recordVersion, r.boot
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if durably {
		err = durable.WriteFile(root, id+suffix, data, 0o600)
	} else {
		err = root.WriteFile(id+suffix, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the record of volume %s: %w", id, err)
	}
	return nil
}

// remove deletes a volume's record.
func (r *records) remove(id, suffix string) error {
	root, err := r.open(false)
	if root == nil || err != nil {
		return err
	}
	err = root.Remove(id + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && suffix == markSuffix {
		err = durable.SyncDir(root, ".")
	}
	if err != nil {
		return fmt.Errorf("remove the record of volume %s: %w", id, err)
	}
	return nil
}

// names lists the files of the directory.
func (r *records) names() (*os.Root, []string, error) {
	root, err := r.open(false)
	if root == nil || err != nil {
		return nil, nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, nil, fmt.Errorf("state directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, nil, fmt.Errorf("state directory: %w", err)
	}
	return root, names, nil
}

// claimed lists the volumes that have a claim of any boot, because a volume of the driver
// stays attached over a reboot.
func (r *records) claimed() (map[string]bool, error) {
	_, names, err := r.names()
	volumes := map[string]bool{}
	for _, name := range names {
		if id, isClaim := strings.CutSuffix(name, claimSuffix); isClaim {
			volumes[id] = true
		}
	}
	return volumes, err
}

// sweep removes temporary files, and the records of volumes that are not attached, for
// which CloseDevice was not called.
func (r *records) sweep(attached func(id string) bool) error {
	root, names, err := r.names()
	failed := []error{err}
	for _, name := range names {
		id, isMark := strings.CutSuffix(name, markSuffix)
		if !isMark {
			id, _ = strings.CutSuffix(name, claimSuffix)
		}
		if alias, ok := strings.CutSuffix(name, aliasSuffix); ok { // of an earlier boot
			if found, err := r.read(alias, aliasSuffix); err == nil && found == nil {
				failed = append(failed, r.remove(alias, aliasSuffix))
			}
			continue
		}
		if durable.IsTemp(name) || (volumeID.MatchString(id) && !attached(id)) {
			if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}
