package binds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// Place makes the binds that are not there yet. directory exists and is where
// they are recorded; bootID is of the running boot.
func Place(directory, bootID string, wanted []Bind) error {
	records, err := readRecords(directory)
	if err != nil {
		return err
	}
	for _, bind := range wanted {
		if err := checkTarget(bind.Target); err != nil {
			return err
		}
		source, err := topmost(bind.Source)
		if err != nil {
			return err
		}
		if source == nil {
			return fmt.Errorf("bind %s: nothing is mounted at %s", bind.Target, bind.Source)
		}
		made := record{Target: bind.Target, Device: deviceOf(source), Root: source.Root, BootID: bootID}
		there, err := topmost(bind.Target)
		if err != nil {
			return err
		}
		if there != nil {
			if slices.Contains(records, made) && made.is(there) {
				continue
			}
			return fmt.Errorf("bind %s: something is mounted there already (%s, %s)", bind.Target, there.FSType, there.Source)
		}
		if err := checkEmpty(bind.Target); err != nil {
			return err
		}
		records = append(slices.DeleteFunc(records, func(r record) bool { return r.Target == bind.Target }), made)
		if err := writeRecords(directory, records); err != nil {
			return err
		}
		if err := mount(bind); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes away what Place made, and nothing else; what is not there is no
// error.
func Remove(directory, bootID string) error {
	records, err := readRecords(directory)
	if err != nil || len(records) == 0 {
		return err
	}
	var failed []error
	for _, made := range slices.Backward(records) {
		there, err := topmost(made.Target)
		if err != nil {
			return err
		}
		if made.BootID != bootID || there == nil || !made.is(there) {
			continue // it is gone, or another one is there now
		}
		err = unix.Unmount(made.Target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: a process has files open there, or its directory", err)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", made.Target, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	err = os.Remove(filepath.Join(directory, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// CheckTarget refuses what no volume can be bound at.
func CheckTarget(target string) error {
	if err := checkTarget(target); err != nil {
		return err
	}
	there, err := topmost(target)
	if err != nil {
		return err
	}
	if there != nil {
		return fmt.Errorf("bind %s: something is mounted there already (%s, %s)", target, there.FSType, there.Source)
	}
	return checkEmpty(target)
}

func checkTarget(target string) error {
	if !filepath.IsAbs(target) || filepath.Clean(target) != target || target == "/" {
		return fmt.Errorf("bind %q: it is no absolute path of a directory", target)
	}
	resolved, err := filepath.EvalSymlinks(target)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bind %s: there is no such directory: make it first", target)
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if resolved != target {
		return fmt.Errorf("bind %s: the path leads over a symbolic link to %s: name that", target, resolved)
	}
	info, err := os.Lstat(target)
	if err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("bind %s: it is no directory", target)
	}
	return nil
}

// checkEmpty: a mount would hide what is in the directory.
func checkEmpty(target string) error {
	entries, err := os.ReadDir(target)
	if err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("bind %s: the directory is not empty: the volume would hide %q", target, entries[0].Name())
	}
	return nil
}

func mount(bind Bind) error {
	if err := unix.Mount(bind.Source, bind.Target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", bind.Source, bind.Target, err)
	}
	if !bind.ReadOnly {
		return nil
	}
	// A bind mount takes its flags from the source; this one says it itself.
	var is unix.Statfs_t
	if err := unix.Statfs(bind.Target, &is); err != nil {
		return fmt.Errorf("bind %s read-only: %w", bind.Target, err)
	}
	if is.Flags&unix.ST_RDONLY != 0 {
		return nil
	}
	if err := unix.Mount("", bind.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("bind %s read-only: %w", bind.Target, err), unix.Unmount(bind.Target, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

func (r record) is(found *mountinfo.Info) bool {
	return r.Device == deviceOf(found) && r.Root == found.Root
}

func deviceOf(found *mountinfo.Info) string { return fmt.Sprintf("%d:%d", found.Major, found.Minor) }

// topmost is the mount that is seen at a path, nil if the path is no mount point.
func topmost(path string) (*mountinfo.Info, error) {
	infos, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return strings.TrimSuffix(info.Mountpoint, "/") != strings.TrimSuffix(path, "/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("what is mounted at %s: %w", path, err)
	}
	if len(infos) == 0 {
		return nil, nil
	}
	return infos[len(infos)-1], nil
}

func writeRecords(directory string, records []record) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return fmt.Errorf("record what is bound: %w", err)
	}
	defer func() { _ = root.Close() }()
	data, err := json.Marshal(records)
	if err != nil {
		return err
	}
	return durable.WriteFile(root, recordFile, data, 0o600)
}
