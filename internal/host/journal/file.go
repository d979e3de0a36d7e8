package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The buckets: entries by sequence; the sequence by identity; and an empty
// value by kind, key and sequence of an entry's object.
const (
	entryBucket    = "entries"
	identityBucket = "identities"
	aboutBucket    = "about"
)

// lockTimeout is as the store's: a killed process's child may have the file
// for an instant.
const lockTimeout = 500 * time.Millisecond

// errDamaged means that a file's content is invalid.
var errDamaged = errors.New("damaged")

// Open opens the journal below root, or creates it. A damaged one is renamed: the
// host starts an empty journal, and an administrator can still read the old one.
func Open(root string, logger *slog.Logger) (*Journal, error) {
	j := &Journal{
		path: filepath.Join(root, FileName), logger: logger, now: time.Now,
		arrived: make(chan struct{}), wake: make(chan struct{}),
	}
	err := j.open()
	if err != nil && isDamage(err) {
		err = j.replace(err)
	}
	if err != nil {
		return nil, fmt.Errorf("the host's journal %s: %w", j.path, err)
	}
	return j, nil
}

func isDamage(err error) bool {
	return !errors.Is(err, bolterrors.ErrTimeout) && !errors.Is(err, os.ErrPermission)
}

// open opens the file and reads all of it: it is written without fsync, so that
// after a power failure anything may be in it.
func (j *Journal) open() error {
	options := &bbolt.Options{Timeout: lockTimeout, NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType}
	err := guard(func() (err error) {
		j.db, err = bbolt.Open(j.path, 0o600, options)
		return err
	})
	if err != nil {
		return err
	}
	if err = guard(j.inspect); err != nil {
		return errors.Join(err, j.shut())
	}
	return nil
}

// guard makes an error of what bbolt panics with over a damaged file, also of
// the fault when a part of it is missing.
func guard(use func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", errDamaged, cause)
		}
	}()
	return use()
}

// inspect makes the buckets, counts, and reads every entry once.
func (j *Journal) inspect() error {
	return j.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{entryBucket, identityBucket, aboutBucket} {
			bucket, err := tx.CreateBucketIfNotExists([]byte(name))
			if err != nil {
				return err
			}
			if err := bucket.ForEach(j.check(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *Journal) check(bucket string) func(key, value []byte) error {
	if bucket != entryBucket {
		return func(_, _ []byte) error { return nil }
	}
	return func(key, value []byte) error {
		entry, err := decode(value)
		if err != nil {
			return err
		}
		if len(key) != 8 || entry.Sequence != binary.BigEndian.Uint64(key) {
			return fmt.Errorf("%w: entry %d is at %x", errDamaged, entry.Sequence, key)
		}
		j.stored++
		j.sequence = entry.Sequence
		return nil
	}
}

func decode(data []byte) (Entry, error) {
	var entry Entry
	if err := json.Unmarshal(data, &entry); err != nil {
		return entry, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if (entry.Event == nil) == (entry.Step == nil) {
		return entry, fmt.Errorf("%w: entry %d says nothing", errDamaged, entry.Sequence)
	}
	return entry, nil
}

// replace moves the file aside and starts an empty one.
func (j *Journal) replace(cause error) error {
	aside := j.path + ".damaged"
	if err := os.Rename(j.path, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(cause, err)
	}
	j.logger.Warn("the journal is damaged; an empty one replaces it", "file", j.path, "moved", aside, "error", cause)
	j.mu.Lock()
	j.stored = 0
	j.mu.Unlock()
	return j.open()
}

// shut closes the file, if there is one. What was written is on disk then.
func (j *Journal) shut() error {
	if j.db == nil {
		return nil
	}
	db := j.db
	j.db = nil
	return guard(func() error { return errors.Join(db.Sync(), db.Close()) })
}
