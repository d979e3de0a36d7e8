package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// ErrDamaged tells that the store's file is not what was written.
var ErrDamaged = errors.New("is damaged")

// openFile opens a file of bbolt. What bbolt reports by a panic, or the kernel
// by a fault in the mapping of a file that was cut off, is ErrDamaged.
func openFile(path string, readOnly bool) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var file *os.File // closed by hand after a panic, for the lock that it holds
	defer func() {
		if broken := recover(); broken != nil {
			err = errors.Join(fmt.Errorf("%w: %v", ErrDamaged, broken), unlock(file), file.Close())
		}
	}()
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockPatience, FreelistType: bbolt.FreelistMapType, ReadOnly: readOnly,
		OpenFile: func(name string, flags int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flags, mode)
			return file, err
		},
	})
}

// checkPages looks at every page of the file.
func checkPages(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(db.Path())
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: it has %d bytes of %d", ErrDamaged, info.Size(), tx.Size())
		}
		var found []error
		for problem := range tx.Check() { // to its end: it works in a goroutine
			if len(found) < 10 {
				found = append(found, problem)
			}
		}
		if len(found) > 0 {
			return fmt.Errorf("%w: %w", ErrDamaged, errors.Join(found...))
		}
		return nil
	})
}

// copyTo writes a consistent copy of the file beside it.
func (s *Store) copyTo(name string) error {
	root, err := os.OpenRoot(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(name+durable.TempSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(io.Writer(file))
		return err
	})
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, root.Remove(name+durable.TempSuffix))
	}
	return durable.Rename(root, name+durable.TempSuffix, name)
}
