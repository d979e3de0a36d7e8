package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// Repaired is what became of a store.
type Repaired struct {
	// Kept is the damaged file, which is never removed.
	Kept string
	// Records that the new store has, by kind.
	Records map[string]int
	// Lost is what could not be read.
	Lost []Problem
	// Unread is where the bytes of records that do not decode are.
	Unread string
}

// rescue copies what can be read from a damaged file to a new one.
type rescue struct {
	root   *os.Root
	vault  *vault
	result *Repaired
}

// Repair replaces the store below root, which nobody may have open, by one with
// everything in it that can be read. The damaged file stays beside it. It is
// for a person who has read what Check says: the records that are lost stand
// for volumes that nobody remembers then.
func Repair(root string, now time.Time) (*Repaired, error) {
	path := filepath.Join(root, FileName)
	directory, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = directory.Close() }()
	name := FileName + ".damaged-" + now.UTC().Format("20060102T150405Z")
	r := &rescue{root: directory, vault: newVault(root, ""), result: &Repaired{Kept: filepath.Join(root, name), Records: map[string]int{}}}
	fresh := FileName + ".new"
	if err := directory.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // of a repair that was killed
	}
	from, err := openFile(path, true)
	if err != nil {
		return nil, fmt.Errorf("%w: nothing can be read from it; the last copy is %s, from the last start: put it in its place", explain(path, err), filepath.Join(root, BackupName))
	}
	defer func() { _ = from.Close() }()
	if err := r.copyInto(from, filepath.Join(root, fresh), name+".unread"); err != nil {
		return nil, err
	}
	// The damaged file keeps its content under both names until the new one is
	// in place: there is no moment without a store.
	if err := directory.Link(FileName, name); err != nil {
		return nil, fmt.Errorf("keep the damaged store: %w", err)
	}
	return r.result, durable.Rename(directory, fresh, FileName)
}

func (r *rescue) copyInto(from *bbolt.DB, path, unread string) error {
	to, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockPatience})
	if err != nil {
		return err
	}
	err = to.Update(func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil {
			return err
		}
		for _, name := range buckets() {
			for key, data := range r.read(from, name) {
				if err := r.keep(tx, name, key, data, unread); err != nil {
					return err
				}
			}
		}
		return r.number(from, tx)
	})
	return errors.Join(err, to.Close())
}

// keep writes a record that decodes to the new store, and one that does not to
// a file for whoever can make sense of it.
func (r *rescue) keep(tx *bbolt.Tx, bucket, key string, data []byte, unread string) error {
	if err := readable(&Tx{tx: tx, vault: r.vault}, bucket, key, data); err == nil || errors.Is(err, errSealed) {
		if bucket != metaBucket {
			r.result.Records[bucket]++
		}
		return tx.Bucket([]byte(bucket)).Put([]byte(key), data)
	} else {
		r.result.Lost = append(r.result.Lost, Problem{Where: fmt.Sprintf("%s %q", bucket, key), What: err.Error(), Lost: true})
	}
	if err := r.root.Mkdir(unread, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	r.result.Unread = filepath.Join(r.root.Name(), unread)
	return durable.WriteFile(r.root, filepath.Join(unread, fmt.Sprintf("%s-%d", bucket, len(r.result.Lost))), data, 0o600)
}

// number keeps versions growing, and the schema of the file.
func (r *rescue) number(from *bbolt.DB, tx *bbolt.Tx) error {
	meta := tx.Bucket([]byte(metaBucket))
	r.guarded("meta", func() error {
		return from.View(func(old *bbolt.Tx) error { return meta.SetSequence(old.Bucket([]byte(metaBucket)).Sequence()) })
	})
	if meta.Get([]byte(schemaKey)) == nil {
		return writeSchema(tx)
	}
	return nil
}

// read collects the records of a table from its beginning, and, when a page in
// between cannot be read, from its end as well.
func (r *rescue) read(from *bbolt.DB, bucket string) map[string][]byte {
	found := map[string][]byte{}
	walk := func(first, next func(*bbolt.Cursor) ([]byte, []byte)) bool {
		return r.guarded(bucket, func() error {
			return from.View(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte(bucket))
				if b == nil {
					return nil // of a later feature
				}
				cursor := b.Cursor()
				for key, data := first(cursor); key != nil; key, data = next(cursor) {
					found[string(key)] = bytes.Clone(data)
				}
				return nil
			})
		})
	}
	if !walk((*bbolt.Cursor).First, (*bbolt.Cursor).Next) {
		walk((*bbolt.Cursor).Last, (*bbolt.Cursor).Prev)
	}
	return found
}

// guarded does what a damaged page may stop, and notes that.
func (r *rescue) guarded(where string, do func() error) (whole bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			whole = false
			r.result.Lost = append(r.result.Lost, Problem{Where: where, What: fmt.Sprintf("a page cannot be read: %v", broken), Lost: true})
		}
	}()
	if err := do(); err != nil {
		r.result.Lost = append(r.result.Lost, Problem{Where: where, What: err.Error(), Lost: true})
		return false
	}
	return true
}
