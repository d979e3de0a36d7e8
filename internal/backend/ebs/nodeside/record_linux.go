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

// appearance is one appearance of a disk on this machine: from when a volume was
// attached, or the machine booted, until it was detached. What is remembered of
// a volume's blocks, or of a disk without a serial number, is true of the same
// appearance only: whatever happened to the volume in between, it happened
// elsewhere.
type appearance struct {
	Boot     string `json:"boot"`               // /proc/sys/kernel/random/boot_id
	Sequence uint64 `json:"sequence,omitempty"` // see diskSequence
	Number   uint64 `json:"number"`             // st_rdev of the disk
}

// recordVersion is raised when an older program must not read the file.
const recordVersion = 1

// record is what is remembered of a volume that is attached here.
type record struct {
	Version int        `json:"version"`
	Disk    appearance `json:"disk"`
	// Xen is the disk's name, where that cannot be found out by a serial number.
	Xen string `json:"xen,omitempty"`
	// Device and what follows are a format mark: of which device, and what.
	Device   uint64 `json:"device,omitempty"`
	FSType   string `json:"fsType,omitempty"`
	Done     bool   `json:"done,omitempty"`
	Resizing bool   `json:"resizing,omitempty"`
}

// The kinds of record, each in files of its own: claims are hints that cost no
// fsync, marks decide whether mkfs runs.
const (
	claimSuffix = ".claim.json"
	markSuffix  = ".mark.json"
)

// records is the state directory. Without a path it is empty.
type records struct {
	path string
	boot string

	mu   sync.Mutex
	root *os.Root // nil until something is written, or found
}

// open returns the directory; nil when there is none and make is false.
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

// read returns a volume's record; nil when there is none, or none that counts in
// this boot. One that cannot be read is as good as none: without it nothing is
// formatted that would not be anyway.
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

// claimed lists the volumes that have a claim, of whatever boot: one that the
// driver had before a reboot is attached still, and its own.
func (r *records) claimed() (map[string]bool, error) {
	root, err := r.open(false)
	if root == nil || err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	volumes := map[string]bool{}
	for _, name := range names {
		if id, isClaim := strings.CutSuffix(name, claimSuffix); isClaim {
			volumes[id] = true
		}
	}
	return volumes, nil
}

// sweep removes what volumes left that were never given back: marks of an
// earlier boot say nothing any more. Claims stay: their volumes may be attached.
func (r *records) sweep(attached func(id string) bool) error {
	root, err := r.open(false)
	if root == nil || err != nil {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	failed := []error{err, dir.Close()}
	for _, name := range names {
		id, isMark := strings.CutSuffix(name, markSuffix)
		if !isMark {
			id, _ = strings.CutSuffix(name, claimSuffix)
		}
		if durable.IsTemp(name) || (volumeID.MatchString(id) && !attached(id)) {
			if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}
