package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"go.etcd.io/bbolt"
)

// migration brings the file from one schema to the next.
type migration struct {
	from int
	do   func(*Tx) error
}

func migrations() []migration {
	return []migration{
		{1, numberObjects},
	}
}

// numberObjects sets each object's kind and version: schema 1 had one-shot
// runs only, and was not watched.
func numberObjects(tx *Tx) error {
	for _, kind := range Kinds() {
		objects, err := tx.Objects(kind).All()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := tx.Objects(kind).Put(KeyOf(object), object); err != nil {
				return err
			}
		}
	}
	return nil
}

// migrate brings an older file to Schema in one transaction, after a copy of it
// was made next to it.
func (s *Store) migrate(from int) error {
	backup := fmt.Sprintf("%s.schema%d", s.path, from)
	if err := s.copyTo(filepath.Base(backup)); err != nil {
		return fmt.Errorf("copy the host's store %s before its schema is changed: %w", s.path, err)
	}
	if err := s.readPlain(); err != nil {
		return fmt.Errorf("the host's store %s: %w", s.path, err)
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil {
			return err
		}
		if err := errors.Join(addChecksums(tx), addUp(tx).write(tx)); err != nil {
			return err
		}
		current := &Tx{tx: tx, vault: s.vault}
		for _, m := range migrations() {
			if m.from < from {
				continue
			}
			if err := m.do(current); err != nil {
				return fmt.Errorf("bring the host's store %s from schema %d to %d (its copy is %s): %w", s.path, m.from,
					m.from+1, backup, err)
			}
		}
		return errors.Join(writeSchema(tx), addUp(tx).write(tx))
	})
}

// readPlain decodes every record of a file of an earlier schema.
func (s *Store) readPlain() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		report := &Report{Records: map[string]int{}}
		report.readAll(&Tx{tx: tx, vault: s.vault, plain: true})
		for _, problem := range report.Problems {
			if problem.Lost {
				return fmt.Errorf("%w: %s", ErrDamaged, problem)
			}
		}
		return nil
	})
}

// addChecksums adds its checksum to every record. It comes before the other steps,
// which read and write records that have one. The file was read in full before: with a
// checksum, a damaged record would seem whole.
func addChecksums(tx *bbolt.Tx) error {
	plain := &Tx{tx: tx, plain: true}
	for _, name := range buckets() {
		if name == metaBucket {
			continue
		}
		records := map[string][]byte{}
		if err := plain.each(name, func(key string, content []byte) error {
			records[key] = withChecksum(name, key, content)
			return nil
		}); err != nil {
			return err
		}
		for key, stored := range records {
			if err := tx.Bucket([]byte(name)).Put([]byte(key), stored); err != nil {
				return err
			}
		}
	}
	return nil
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range buckets() {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return fmt.Errorf("make bucket %s: %w", name, err)
		}
	}
	return nil
}

func writeSchema(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(metaBucket)).Put([]byte(schemaKey), []byte(strconv.Itoa(Schema)))
}
