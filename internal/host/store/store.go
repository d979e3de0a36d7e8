// Package store keeps the host's state in one bbolt file below its root directory: the
// objects the user gave (StorageClass, PersistentVolumeClaim, Pod, CSIDriver), the
// volumes made for them, and the records of each volume's running operation. Every
// change is one transaction that is on disk when it returns; callers write the intent
// before an effect and the result after it.
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

// FileName is the store's file below the root directory.
const FileName = "host.db"

// Schema is the version of the file's layout that this program writes.
const Schema = 3

// ErrLocked means that another process has the store open.
var ErrLocked = errors.New("in use by another process")

// lockTimeout is how long the lock is tried for. A process that was killed may
// leave a child between fork and exec, which has its descriptors for an instant.
const lockTimeout = 500 * time.Millisecond

const (
	metaBucket = "meta"
	schemaKey  = "schema"
)

// Store is the open file. It is safe for concurrent use.
type Store struct {
	db      *bbolt.DB
	path    string
	history *history
	vault   *vault
	// commits is held during a commit and its publication.
	commits  sync.Mutex
	arrivals sync.Mutex
	arrived  []*change // for the next commit
	// backups is held while a backup is made; backedUp is the last transaction
	// that one has.
	backups  sync.Mutex
	backedUp int
	options  Options
	plain    bool // see Tx
	points   *failpoint.Set
}

// Options of a store.
type Options struct {
	// SecretsKey is the file with the key of the Secrets, which has to exist; one
	// below the root, made when it is needed, if empty.
	SecretsKey string
	// New is asked before a store is made where there is none; its error refuses.
	New func() error
	// Failpoints stop the process before a change, before its commit, and between the
	// steps of a backup.
	Failpoints *failpoint.Set
}

func (o Options) vault(root string) *vault { return newVault(root, o.SecretsKey) }

// Open opens the store below root and makes it if there is none. It takes the
// file's lock for as long as the store is open.
func Open(root string) (*Store, error) { return OpenWith(root, Options{}) }

// OpenWith is Open with options.
func OpenWith(root string, options Options) (*Store, error) {
	path := filepath.Join(root, FileName)
	if options.New == nil {
		options.New = func() error { return nil }
	}
	// Before the file is made: one that was begun and refused would be left behind.
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		if err := options.New(); err != nil {
			return nil, err
		}
	}
	db, err := openFile(path, false)
	if err != nil {
		return nil, explain(path, err)
	}
	store := &Store{db: db, path: path, vault: options.vault(root), options: options, points: options.Failpoints}
	if err := store.prepare(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := store.verify(); err != nil {
		return nil, errors.Join(explain(path, fmt.Errorf("%w: %w", ErrDamaged, err)), db.Close())
	}
	var version uint64
	if err := store.View(func(tx *Tx) error {
		version = tx.Version()
		return nil
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	store.history = &history{oldest: version, arrived: make(chan struct{})}
	if err := store.compareWithBackups(version); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store, nil
}

func explain(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("the host's store %s: %w%s: wait until it ends, or give this one another directory with --root",
			path, ErrLocked, holder(path))
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, ErrDamaged):
		if !errors.Is(err, ErrDamaged) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return fmt.Errorf("the host's store %s %w: run 'holdfast host check'; 'holdfast host repair' keeps what can be read, and 'holdfast host restore %s' goes back to the newest backup; volumes are kept by their drivers", path, err, BackupName)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the host's store: %w: holdfast needs root", err)
	}
	return fmt.Errorf("open the host's store %s: %w", path, err)
}

// prepare makes the buckets and checks the schema. It rejects a store of a newer
// program without a change, and migrates an older one.
func (s *Store) prepare() error {
	version, complete, err := s.inspect()
	if err != nil {
		return err
	}
	if version == Schema && complete {
		return nil // nothing to write: opening costs no fsync
	}
	if version > Schema {
		return fmt.Errorf("the host's store %s has schema %d; this program knows %d: use the newer holdfast that wrote it",
			s.path, version, Schema)
	}
	if 0 < version && version < Schema {
		return s.migrate(version)
	}
	if version == 0 {
		if err := s.options.New(); err != nil { // of a file that was made, and no more
			return err
		}
		if err := syncDirectory(filepath.Dir(s.path)); err != nil {
			return fmt.Errorf("the host's store %s: %w", s.path, err)
		}
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := errors.Join(makeBuckets(tx), writeSchema(tx)); err != nil || version != 0 {
			return err
		}
		return addUp(tx).write(tx)
	})
}

// syncDirectory makes a new file's entry durable; bbolt syncs the file only.
func syncDirectory(directory string) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(root, "."), root.Close())
}

// inspect reads the schema's version, 0 for a new file, and whether every
// bucket is there: one of a later feature may not be.
func (s *Store) inspect() (version int, complete bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		complete = !slices.ContainsFunc(buckets(), func(name string) bool { return tx.Bucket([]byte(name)) == nil })
		meta := tx.Bucket([]byte(metaBucket))
		if meta == nil {
			return nil
		}
		text := string(meta.Get([]byte(schemaKey)))
		if version, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("the host's store %s: schema %q is not a number: the file is damaged", s.path, text)
		}
		return nil
	})
	return version, complete, err
}

// Close closes the file and releases its lock.
func (s *Store) Close() error { return s.db.Close() }

// Path is the store's file.
func (s *Store) Path() string { return s.path }

// View reads a consistent state.
func (s *Store) View(read func(*Tx) error) error {
	return s.db.View(func(tx *bbolt.Tx) error { return read(&Tx{tx: tx, vault: s.vault, plain: s.plain}) })
}
