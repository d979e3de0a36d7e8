package binds

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// Make makes the bind mounts that do not exist yet. directory exists and is where
// they are recorded; bootID is of the running boot.
func Make(directory, bootID string, desired []Bind) error {
	records, err := readRecords(directory)
	if err != nil {
		return err
	}
	for _, bind := range desired {
		if records, err = makeBind(directory, bootID, records, bind); err != nil {
			return err
		}
	}
	return nil
}

// makeBind makes one bind mount, and returns the changed records.
func makeBind(directory, bootID string, records []record, bind Bind) ([]record, error) {
	target, err := openTarget(bind.Target)
	if err != nil {
		return records, err
	}
	defer func() { _ = target.Close() }()
	source, err := mountedAt(bind.Source)
	if err != nil {
		return records, err
	}
	if source == nil {
		return records, fmt.Errorf("bind %s: nothing is mounted at %s", bind.Target, bind.Source)
	}
	made := record{Target: bind.Target, Device: deviceOf(source), Root: source.Root, BootID: bootID}
	there, err := mountOf(target, "")
	if err != nil {
		return records, err
	}
	switch {
	case there == nil:
	case slices.Contains(records, made) && made.ok(there):
		return records, setReadOnly(target, bind)
	default:
		return records, occupied(bind.Target, there)
	}
	if err := checkEmpty(target, bind.Target); err != nil {
		return records, err
	}
	records = append(slices.DeleteFunc(records, func(r record) bool { return r.Target == bind.Target }), made)
	if err := writeRecords(directory, records); err != nil {
		return records, err
	}
	return records, mount(bind, target)
}

// Remove removes the mounts that Make made. A missing mount is not an error.
func Remove(directory, bootID string) error {
	records, err := readRecords(directory)
	if err != nil || len(records) == 0 {
		return err
	}
	var failed []error
	for _, made := range slices.Backward(records) {
		if made.BootID != bootID {
			continue // its boot is over
		}
		if err := made.remove(); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", made.Target, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	err = os.Remove(filepath.Join(directory, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}

// CheckTarget returns an error if no volume can be bound at a path.
func CheckTarget(path string) error {
	target, err := openTarget(path)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	there, err := mountOf(target, "")
	if err != nil {
		return err
	}
	if there != nil {
		return occupied(path, there)
	}
	return checkEmpty(target, path)
}

func occupied(target string, there *mountinfo.Info) error {
	return fmt.Errorf("bind %s: something is mounted there already (%s, %s)", target, there.FSType, there.Source)
}

func (r record) ok(found *mountinfo.Info) bool {
	return r.Device == deviceOf(found) && r.Root == found.Root
}

func deviceOf(found *mountinfo.Info) string { return fmt.Sprintf("%d:%d", found.Major, found.Minor) }

func writeRecords(directory string, records []record) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return fmt.Errorf("record the bind mounts: %w", err)
	}
	defer func() { _ = root.Close() }()
	data, err := json.Marshal(records)
	if err != nil {
		return err
	}
	return durable.WriteFile(root, recordFile, data, 0o600)
}
