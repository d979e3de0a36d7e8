package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// record is the stored intent and state of a unit's processes, with which a
// restarted host finds them again.
type record struct {
	File      string
	Unit      *Unit // the last that was started
	Processes []processRecord
}

// processRecord is one process. It is written before the process is started, with a
// token that the process has in its environment, and again when the process ID is
// known.
type processRecord struct {
	Slot    int
	Token   string
	Hash    string // of the unit
	BootID  string
	PID     int    `json:",omitempty"`
	Start   uint64 `json:",omitempty"` // in clock ticks since the boot
	Started time.Time
}

const recordSuffix = ".json"

// records are the files with the records.
type records struct{ root *os.Root }

func openRecords(directory string) (*records, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the drivers' processes: %w", err)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	return &records{root}, nil
}

// all reads every record. It returns the damaged ones separately, because their
// processes might be started twice.
func (r *records) all() (found map[string]*record, damaged map[string]error, err error) {
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	found, damaged = map[string]*record{}, map[string]error{}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok {
			continue
		}
		one := &record{}
		data, err := r.root.ReadFile(entry.Name())
		if err == nil {
			err = json.Unmarshal(data, one)
		}
		if err == nil && one.Unit == nil {
			err = errors.New("it has no unit")
		}
		if err != nil {
			damaged[name] = fmt.Errorf("the record of its processes, %s, is damaged: end the driver if it runs, and remove that file: %w",
				filepath.Join(r.root.Name(), entry.Name()), err)
			continue
		}
		found[name] = one
	}
	return found, damaged, nil
}

// exists reports whether a unit has a record.
func (r *records) exists(name string) bool {
	_, err := r.root.Lstat(name + recordSuffix)
	return !errors.Is(err, fs.ErrNotExist)
}

func (r *records) write(name string, one *record) error {
	data, err := json.MarshalIndent(one, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(r.root, name+recordSuffix, append(data, '\n'), 0o600)
}

func (r *records) remove(name string) error {
	if err := r.root.Remove(name + recordSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncDir(r.root, ".")
}
