// Package durable writes small files so that a crash leaves the old content or
// the new one, never a mixture, and so that reported writes survive a power loss: write
// to a temporary name, fsync the file, rename, fsync the directory (rename(2),
// fsync(2)).
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// TempSuffix ends the names of files that a crash may leave half written;
// readers of a directory ignore or remove them.
const TempSuffix = ".tmp"

// WriteFile replaces name below root with data.
func WriteFile(root *os.Root, name string, data []byte, mode fs.FileMode) (err error) {
	temp := name + TempSuffix
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreAbsent(root.Remove(temp)))
		}
	}()
	if _, err := file.Write(data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), file.Close())
	}
	if err := file.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync %s: %w", name, err), file.Close())
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", name, err)
	}
	if err := root.Rename(temp, name); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return SyncDir(root, path.Dir(name))
}

// SyncDir makes the entries of a directory below root durable.
func SyncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", name, err)
	}
	if err := dir.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync directory %s: %w", name, err), dir.Close())
	}
	return dir.Close()
}

// Mkdir makes one directory whose entry is durable; one that exists is fine.
func Mkdir(root *os.Root, name string, mode fs.FileMode) error {
	if err := root.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", name, err)
	}
	return SyncDir(root, path.Dir(name))
}

// Rename moves an entry below root and makes both directories durable.
func Rename(root *os.Root, from, to string) error {
	if err := root.Rename(from, to); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	if err := SyncDir(root, path.Dir(to)); err != nil {
		return err
	}
	if path.Dir(from) == path.Dir(to) {
		return nil
	}
	return SyncDir(root, path.Dir(from))
}

// IsTemp reports whether a directory entry is the rest of an interrupted write.
func IsTemp(name string) bool { return strings.HasSuffix(name, TempSuffix) }

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
