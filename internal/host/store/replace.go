package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// Replaced is the outcome of replacing a store.
type Replaced struct {
	// Kept is where the earlier file is, "" if there was none.
	Kept string
	// Records that the store has now, by table.
	Records map[string]int
	// Problems are the invalid records in it; no record is lost.
	Problems []Problem
}

// resetKey marks a store that an administrator replaced by an empty one, although
// volumes or mounts of an earlier host may remain.
const resetKey = "startedAnew"

// Restore replaces the store below root, which no process may have open, by a copy of
// a backup. The backup is a file name below root, or a path. The replaced file stays,
// under another name. The version of the restored store is above that of every
// backup: watchers see versions that grow, and the next start distinguishes it from
// an older file that was copied there by hand.
func Restore(root, backup string, options Options, now time.Time) (*Replaced, error) {
	if !filepath.IsAbs(backup) && filepath.Base(backup) == backup {
		backup = filepath.Join(root, backup)
	}
	report, err := checkFile(backup, options.vault(root))
	if err != nil {
		return nil, err
	}
	if !(Generation{Problems: report.Problems}).Sound() {
		return nil, fmt.Errorf("the backup %s %w: %s: choose another one", backup, ErrDamaged, report.Problems[0])
	}
	replaced := &Replaced{Records: report.Records, Problems: report.Problems}
	replaced.Kept, err = replaceStore(root, options, now, func(path string) error { return copyStore(backup, path) })
	return replaced, err
}

// Reset replaces the store below root, if there is one, by an empty one. It is for
// an administrator who gives up the objects of an earlier host. The next host starts
// even if volumes or mounts of the earlier one remain.
func Reset(root string, options Options, now time.Time) (*Replaced, error) {
	kept, err := replaceStore(root, options, now, func(path string) error {
		return setMeta(path, func(meta *bbolt.Bucket) error {
			return meta.Put([]byte(resetKey), []byte(now.UTC().Format(time.RFC3339)))
		})
	})
	return &Replaced{Kept: kept, Records: map[string]int{}}, err
}

// WasReset reports whether the store was made by Reset.
func (t *Tx) WasReset() bool {
	return t.tx.Bucket([]byte(metaBucket)).Get([]byte(resetKey)) != nil
}

// setMeta opens a store's file that no other process knows, makes the tables that
// it lacks, and changes its metadata. A new file gets the present schema.
func setMeta(path string, set func(meta *bbolt.Bucket) error) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		if meta == nil {
			if err := errors.Join(makeBuckets(tx), writeSchema(tx)); err != nil {
				return err
			}
			meta = tx.Bucket([]byte(metaBucket))
		}
		if err := set(meta); err != nil {
			return err
		}
		if schema, err := strconv.Atoi(string(meta.Get([]byte(schemaKey)))); err != nil || schema < checksummed {
			return err
		}
		return addUp(tx).write(tx)
	})
	return errors.Join(err, db.Close())
}

// copyStore writes a consistent copy of a store's file.
func copyStore(from, to string) error {
	db, err := openFile(from, true)
	if err != nil {
		return explain(from, err)
	}
	err = db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(to, 0o600) })
	return errors.Join(err, db.Close())
}

// replaceStore replaces the store's file by one that fill makes, under the store's
// lock, with a version above every one that is known. It returns where the earlier
// file is kept. A store exists at every moment.
func replaceStore(root string, options Options, now time.Time, fill func(path string) error) (kept string, err error) {
	path := filepath.Join(root, FileName)
	directory, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer func() { _ = directory.Close() }()
	present, err := directory.Open(FileName)
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, present.Close()) }() // it holds the lock until then
		if err := lock(present, true); err != nil {
			return "", explain(path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", explain(path, err)
	}
	fresh := FileName + ".new"
	if err := removeIfThere(directory, fresh); err != nil { // left by a replacement that was killed
		return "", err
	}
	if err := fill(filepath.Join(root, fresh)); err != nil {
		return "", errors.Join(err, removeIfThere(directory, fresh))
	}
	version, err := newestVersion(root, options)
	if err != nil {
		return "", err
	}
	if err := setMeta(filepath.Join(root, fresh), func(meta *bbolt.Bucket) error {
		return meta.SetSequence(max(version, meta.Sequence()) + 1)
	}); err != nil {
		return "", err
	}
	if present != nil {
		name, err := linkKept(directory, now)
		if err != nil {
			return "", fmt.Errorf("keep the store as it is: %w", err)
		}
		kept = filepath.Join(root, name)
	}
	return kept, durable.Rename(directory, fresh, FileName)
}

// linkKept links the store's file to a second name that is free: a store may be
// replaced twice in a second, as after a wrong backup.
func linkKept(directory *os.Root, now time.Time) (name string, err error) {
	first := FileName + ".replaced-" + now.UTC().Format("20060102T150405Z")
	name = first
	for n := 2; ; n++ {
		err := directory.Link(FileName, name)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		name = first + "-" + strconv.Itoa(n)
	}
}

// newestVersion returns the highest version of the store and its backups, as far as they can
// be read.
func newestVersion(root string, options Options) (uint64, error) {
	generations, err := Generations(root, options)
	if err != nil {
		return 0, err
	}
	newest := uint64(0)
	if len(generations) > 0 {
		newest = generations[0].Version
	}
	if report, err := checkFile(filepath.Join(root, FileName), options.vault(root)); err == nil {
		newest = max(newest, report.Version)
	}
	return newest, nil
}
