package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/host/store/pages"
)

// Repaired is the result of a repair.
type Repaired struct {
	// Kept is the damaged file, which is never removed.
	Kept string
	// Records that the new store has, by kind.
	Records map[string]int
	// Lost lists the records that could not be read.
	Lost []Problem
	// Unsure are records that the new store has, and that may be of an earlier
	// time than the last change: what led to them is lost.
	Unsure []Problem
	// Unread is where the bytes of records that do not decode are.
	Unread string
}

// rescue copies the readable records of a damaged file to a new one.
type rescue struct {
	root   *os.Root
	vault  *vault
	unread string // the directory's name
	result *Repaired
	// plain: the records of the damaged file have no checksums.
	plain bool
	// backups are the sound ones, the newest first.
	backups []Generation
}

// Repair replaces the store below root, which no process may have open, by one
// with everything in it that can be read. The damaged file stays next to it. It is
// for an administrator who has read what Check says: the host does not know the
// volume of a lost record any more.
func Repair(root string, now time.Time) (*Repaired, error) {
	path := filepath.Join(root, FileName)
	directory, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = directory.Close() }()
	r := &rescue{
		root: directory, vault: newVault(root, ""), unread: FileName + ".unread-" + now.UTC().Format("20060102T150405Z"),
		result: &Repaired{Records: map[string]int{}},
	}
	generations, err := Generations(root, Options{})
	if err != nil {
		return nil, err
	}
	r.backups = slices.DeleteFunc(generations, func(g Generation) bool { return !g.Sound() })
	r.result.Kept, err = replaceStore(root, Options{}, now, func(fresh string) error {
		damaged, err := directory.Open(FileName)
		if err != nil {
			return explain(path, err)
		}
		defer func() { _ = damaged.Close() }() // read only
		info, err := damaged.Stat()
		if err != nil {
			return err
		}
		salvaged := pages.Salvage(damaged, info.Size())
		if len(salvaged.Records) == 0 {
			return fmt.Errorf("the host's store %s: nothing can be read from it: restore a backup with 'holdfast host restore %s' ('holdfast host backups' lists them)", path, BackupName)
		}
		r.plain = isPlain(salvaged)
		return r.copyInto(salvaged, fresh)
	})
	if err != nil {
		return nil, err
	}
	return r.result, nil
}

// isPlain reports whether the file is of a schema without checksums: by its number,
// and without one by what most records are.
func isPlain(salvaged *pages.Salvaged) bool {
	plain := 0
	for _, record := range salvaged.Records {
		if record.Bucket == metaBucket && string(record.Key) == schemaKey && record.Standing == pages.Reached {
			schema, err := strconv.Atoi(string(record.Value))
			if err == nil {
				return schema < checksummed
			}
		}
		if len(record.Value) > 0 && record.Value[0] == '{' {
			plain++
		}
	}
	return plain > len(salvaged.Records)/2
}

func (r *rescue) copyInto(salvaged *pages.Salvaged, path string) error {
	to, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if err != nil {
		return err
	}
	for _, problem := range salvaged.Problems {
		r.lose("the file", problem)
	}
	for _, name := range unknownTables(salvaged) {
		r.lose("the file", fmt.Errorf("its table %q has a damaged name", name))
	}
	err = to.Update(func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil {
			return err
		}
		candidates := classify(salvaged)
		for _, name := range buckets() {
			if name == metaBucket {
				continue
			}
			for key, found := range candidates[name] {
				if err := r.keep(tx, name, key, found); err != nil {
					return err
				}
			}
		}
		r.count(addUp(tx), lastSums(salvaged))
		meta := tx.Bucket([]byte(metaBucket))
		if err := meta.SetSequence(lastVersion(salvaged)); err != nil {
			return err
		}
		offered := (&Tx{tx: tx}).keepOffered(salvaged)
		return errors.Join(offered, writeSchema(tx), addUp(tx).write(tx))
	})
	return errors.Join(err, to.Close())
}

// count reports the tables that differ from the last transaction's and of which no
// record is named: damage can hide a record together with its key.
func (r *rescue) count(kept, recorded *sums) {
	if r.plain {
		return // its schema has no sums
	}
	if recorded == nil {
		r.lose("the file", errors.New("the sums of its tables cannot be read: other records may be missing, too"))
		return
	}
	for _, name := range buckets() {
		if name == metaBucket {
			continue
		}
		has, had := kept.table(name), recorded.table(name)
		switch {
		case has.Count < had.Count:
			r.lose(name, fmt.Errorf("the table has %d records, and had %d", has.Count, had.Count))
		case *has != *had && !r.names(name):
			r.unsure(name, fmt.Sprintf("the table has %d records, and had %d; or they are of an earlier time",
				has.Count, had.Count))
		}
	}
}

// names reports whether the result names a record of a table.
func (r *rescue) names(table string) bool {
	return slices.ContainsFunc(slices.Concat(r.result.Lost, r.result.Unsure), func(p Problem) bool {
		return strings.HasPrefix(p.Where, table+" ")
	})
}

func (r *rescue) lose(where string, why error) {
	r.result.Lost = append(r.result.Lost, Problem{Where: where, What: why.Error(), Lost: true})
}

// keep writes the best readable record of a key to the new store, and unreadable
// ones to a file for an administrator. The newest backup replaces a record that is
// lost.
func (r *rescue) keep(tx *bbolt.Tx, bucket, key string, found []pages.Record) error {
	where := fmt.Sprintf("%s %q", bucket, key)
	var last error
	for _, record := range found {
		content, err := r.whole(tx, bucket, key, record.Value)
		if err != nil {
			last = err
			if err := r.putAside(bucket, record); err != nil {
				return err
			}
			continue
		}
		if last != nil || record.Standing > pages.Loose {
			r.unsure(where, "it may be of an earlier time than the last change")
		}
		return r.put(tx, bucket, key, content)
	}
	for _, generation := range r.backups {
		content, err := r.fromBackup(generation, bucket, key)
		if content == nil || err != nil {
			continue
		}
		r.unsure(where, "it is from the backup "+generation.Name+": "+last.Error())
		return r.put(tx, bucket, key, content)
	}
	r.lose(where, last)
	return nil
}

// whole returns the content of a stored record that passes its checksum, if its
// schema has one, and decodes.
func (r *rescue) whole(tx *bbolt.Tx, bucket, key string, stored []byte) ([]byte, error) {
	content := stored
	if !r.plain {
		var err error
		if content, err = checkRecord(bucket, key, stored); err != nil {
			return nil, err
		}
	}
	err := readable(&Tx{tx: tx, vault: r.vault}, bucket, key, content)
	if errors.Is(err, ErrSealed) {
		err = nil
	}
	return content, err
}

func (r *rescue) fromBackup(generation Generation, bucket, key string) (content []byte, err error) {
	db, err := openFile(filepath.Join(r.root.Name(), generation.Name), true)
	if err != nil {
		return nil, err
	}
	err = db.View(func(backup *bbolt.Tx) error {
		table := backup.Bucket([]byte(bucket))
		if table == nil {
			return nil
		}
		old := &Tx{tx: backup, plain: generation.Schema < checksummed}
		found, err := old.get(bucket, key)
		if found != nil && err == nil {
			content = append([]byte{}, found...)
		}
		return err
	})
	return content, errors.Join(err, db.Close())
}

func (r *rescue) unsure(where, why string) {
	r.result.Unsure = append(r.result.Unsure, Problem{Where: where, What: why})
}

func (r *rescue) put(tx *bbolt.Tx, bucket, key string, content []byte) error {
	r.result.Records[bucket]++
	return tx.Bucket([]byte(bucket)).Put([]byte(key), withChecksum(bucket, key, content))
}

func (r *rescue) putAside(bucket string, record pages.Record) error {
	if err := r.root.Mkdir(r.unread, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	r.result.Unread = filepath.Join(r.root.Name(), r.unread)
	name := fmt.Sprintf("%s-%d", bucket, len(r.result.Lost)+len(r.result.Unsure))
	return durable.WriteFile(r.root, filepath.Join(r.unread, name), record.Value, 0o600)
}
