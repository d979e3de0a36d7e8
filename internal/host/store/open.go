package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/host/store/pages"
)

// ErrDamaged means that the store's file is corrupt.
var ErrDamaged = errors.New("is damaged")

// openFile opens a file of bbolt, of which every page is inspected first, under
// the lock: bbolt trusts what it maps, and an invalid page number makes it
// fault. What it still reports by a panic, or the kernel by a fault in the
// mapping, is ErrDamaged.
func openFile(path string, readOnly bool) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var file *os.File // closed after a panic, to release its lock
	defer func() {
		if broken := recover(); broken != nil {
			err = errors.Join(fmt.Errorf("%w: %v", ErrDamaged, broken), unlock(file), file.Close())
		}
	}()
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, ReadOnly: readOnly,
		OpenFile: func(name string, flags int, mode os.FileMode) (*os.File, error) {
			file, err = os.OpenFile(name, flags, mode)
			if err != nil {
				return nil, err
			}
			if err := lockAndCheck(file, readOnly); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		},
	})
}

// lockAndCheck takes the lock that bbolt then finds taken by its own file.
func lockAndCheck(file *os.File, shared bool) error {
	if err := lock(file, shared); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := pages.Check(file, info.Size()); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// copyTo writes a consistent copy of the file next to it.
func (s *Store) copyTo(name string) error {
	root, err := os.OpenRoot(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	temporary := name + durable.TempSuffix
	if err := s.writeCopy(root, temporary); err != nil {
		return errors.Join(err, removeIfThere(root, temporary))
	}
	return durable.Rename(root, temporary, name)
}

// writeCopy writes a consistent copy that is on disk when it returns.
func (s *Store) writeCopy(root *os.Root, name string) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(file)
		return err
	})
	return errors.Join(err, file.Sync(), file.Close())
}
