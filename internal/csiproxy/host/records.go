package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// records are the state that the host needs after a crash and that it cannot observe:
// the intent to format a volume, and the users of an SMB mapping. Each is a small file
// that is replaced by a rename, so that a crash leaves the old one or the new one.
//
// It does the same as package durable, without os.Root: under wine, nothing below an
// os.Root can be removed. Windows has no fsync of a directory; NTFS journals its
// entries. Names of records are constants of this package, or digests.
type records struct {
	dir    string // "" keeps them in memory
	logger *slog.Logger

	mu     sync.Mutex
	memory map[string][]byte
}

const recordTemp = ".tmp"

func newRecords(dir string, logger *slog.Logger) (*records, error) {
	r := &records{dir: dir, logger: logger, memory: map[string][]byte{}}
	if dir == "" {
		return r, nil
	}
	open, err := makeRecordDir(dir)
	if err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	if open != nil {
		logger.Warn("accounts other than administrators may read the state directory of csi-proxy",
			"path", dir, "error", open)
	}
	return r, nil
}

func (r *records) path(name string) string { return filepath.Join(r.dir, name+".json") }

// read decodes a record. A damaged file is logged and treated as missing, which is safe:
// a missing record allows nothing.
func (r *records) read(name string, into any) (bool, error) {
	data, err := r.load(name)
	if err != nil || data == nil {
		return false, err
	}
	if len(data) == 0 {
		return false, nil // see forget
	}
	if err := json.Unmarshal(data, into); err != nil {
		r.logger.Error("a record is damaged and is ignored", "record", name, "error", err)
		return false, nil
	}
	return true, nil
}

func (r *records) load(name string) ([]byte, error) {
	if r.dir == "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.memory[name], nil
	}
	data, err := os.ReadFile(r.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record %s: %w", name, err)
	}
	return data, nil
}

// write replaces a record, durably.
func (r *records) write(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write the record %s: %w", name, err)
	}
	if r.dir == "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.memory[name] = data
		return nil
	}
	return during(r.replace(r.path(name), data), "write the record %s", name)
}

func (r *records) replace(path string, data []byte) error {
	temp := path + recordTemp
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return r.syncEntries()
}

// remove deletes a record; a missing one is not an error.
func (r *records) remove(name string) error {
	if r.dir == "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.memory, name)
		return nil
	}
	err := forget(r.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.syncEntries()
	}
	return during(err, "remove the record %s", name)
}

// forget empties a record on the disk before it removes the file. NTFS writes the
// removal of a name some seconds later. After a loss of power in between, the record of
// a format would exist again although the volume has files.
func forget(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// syncEntries makes the names in the directory durable, if that needs a call.
func (r *records) syncEntries() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
