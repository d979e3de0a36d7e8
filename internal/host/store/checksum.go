package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// Every record is stored with a checksum over its table, its key and its content:
// bbolt has none, and changed bytes can be JSON all the same. The table meta has
// the number and the sum of the checksums of every table, so that a record that is
// missing, or is back from an earlier transaction, shows as well.
//
// A stored record is checksummedRecord, the CRC-32C in little endian, the content.
const (
	checksummedRecord = 1
	recordHeader      = 1 + crc32.Size
	sumsKey           = "sums"
	// checksummed is the first schema whose records have checksums.
	checksummed = 3
)

func recordChecksum(table, key string, content []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, castagnoli, []byte(table+"\x00"+key+"\x00"))
	return crc32.Update(sum, castagnoli, content)
}

// withChecksum is a record as it is stored.
func withChecksum(table, key string, content []byte) []byte {
	stored := make([]byte, recordHeader, recordHeader+len(content))
	stored[0] = checksummedRecord
	binary.LittleEndian.PutUint32(stored[1:], recordChecksum(table, key, content))
	return append(stored, content...)
}

// checkRecord returns the content of a stored record.
func checkRecord(table, key string, stored []byte) ([]byte, error) {
	if len(stored) < recordHeader || stored[0] != checksummedRecord {
		return nil, fmt.Errorf("%s %q %w: it has no checksum", table, key, ErrDamaged)
	}
	content := stored[recordHeader:]
	if binary.LittleEndian.Uint32(stored[1:]) != recordChecksum(table, key, content) {
		return nil, fmt.Errorf("%s %q %w: its checksum does not match", table, key, ErrDamaged)
	}
	return content, nil
}

// contentOf returns the content of a record of any schema, without a check of its sum.
func contentOf(stored []byte) []byte {
	if len(stored) >= recordHeader && stored[0] == checksummedRecord {
		return stored[recordHeader:]
	}
	return stored
}

// tableSum is the sum of a table's records.
type tableSum struct {
	Count int64
	Sum   uint64
}

func (s *tableSum) add(stored []byte, sign int64) {
	if len(stored) < recordHeader {
		return
	}
	s.Count += sign
	s.Sum += uint64(sign) * uint64(binary.LittleEndian.Uint32(stored[1:])) //nolint:gosec // wraps, and back
}

// sums are the sums of all tables after a change.
type sums struct {
	Version uint64
	Tables  map[string]*tableSum
}

func (s *sums) table(name string) *tableSum {
	if s.Tables[name] == nil {
		s.Tables[name] = &tableSum{}
	}
	return s.Tables[name]
}

// addUp computes the sums of the stored records.
func addUp(tx *bbolt.Tx) *sums {
	total := &sums{Version: tx.Bucket([]byte(metaBucket)).Sequence(), Tables: map[string]*tableSum{}}
	for _, name := range buckets() {
		bucket := tx.Bucket([]byte(name))
		if name == metaBucket || bucket == nil {
			continue
		}
		sum := total.table(name)
		_ = bucket.ForEach(func(_, stored []byte) error { // the function never fails
			sum.add(stored, 1)
			return nil
		})
	}
	return total
}

func readSums(tx *bbolt.Tx) (*sums, error) {
	return decodeSums(tx.Bucket([]byte(metaBucket)).Get([]byte(sumsKey)))
}

func decodeSums(stored []byte) (*sums, error) {
	content, err := checkRecord(metaBucket, sumsKey, stored)
	if err != nil {
		return nil, err
	}
	read := &sums{}
	if err := json.Unmarshal(content, read); err != nil {
		return nil, fmt.Errorf("%s %q %w: %w", metaBucket, sumsKey, ErrDamaged, err)
	}
	return read, nil
}

func (s *sums) write(tx *bbolt.Tx) error {
	s.Version = tx.Bucket([]byte(metaBucket)).Sequence()
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(metaBucket)).Put([]byte(sumsKey), withChecksum(metaBucket, sumsKey, content))
}

// compareSums returns the differences between the sums and the stored records.
func compareSums(tx *bbolt.Tx) (problems []Problem) {
	recorded, err := readSums(tx)
	if err != nil {
		return []Problem{{Where: "the file", What: err.Error(), Lost: true}}
	}
	found := addUp(tx)
	if found.Version != recorded.Version {
		problems = append(problems, Problem{Where: "the file", What: fmt.Sprintf("it has the version %d, and its records are those of %d", found.Version, recorded.Version), Lost: true})
	}
	for _, name := range buckets() {
		if name == metaBucket {
			continue
		}
		if ok, was := found.table(name), recorded.table(name); *ok != *was {
			problems = append(problems, Problem{Where: name,
				What: fmt.Sprintf("the table has %d records, and had %d; or they are others", ok.Count, was.Count), Lost: true})
		}
	}
	return problems
}

// verify reads every record's checksum.
func (s *Store) verify() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		current := &Tx{tx: tx, vault: s.vault}
		var failed []error
		for _, name := range buckets() {
			if name == metaBucket {
				continue
			}
			_ = tx.Bucket([]byte(name)).ForEach(func(key, stored []byte) error { // the function never fails
				_, err := current.content(name, string(key), stored)
				failed = append(failed, err)
				return nil
			})
		}
		if err := errors.Join(failed...); err != nil {
			return err
		}
		for _, problem := range compareSums(tx) {
			failed = append(failed, fmt.Errorf("%w: %s", ErrDamaged, problem))
		}
		return errors.Join(failed...)
	})
}

// content checks a stored record; one of an earlier schema has no checksum.
func (t *Tx) content(table, key string, stored []byte) ([]byte, error) {
	if t.plain {
		return stored, nil
	}
	return checkRecord(table, key, stored)
}

// get returns the content of a record, nil if there is none.
func (t *Tx) get(table, key string) ([]byte, error) {
	stored := t.tx.Bucket([]byte(table)).Get([]byte(key))
	if stored == nil {
		return nil, nil
	}
	return t.content(table, key, stored)
}

// each calls a function with every record of a table, in the order of the keys.
func (t *Tx) each(table string, do func(key string, content []byte) error) error {
	return t.tx.Bucket([]byte(table)).ForEach(func(key, stored []byte) error {
		content, err := t.content(table, string(key), stored)
		if err != nil {
			return err
		}
		return do(string(key), content)
	})
}

// store writes the stored form of a record, nil to remove it, and updates the sums. It
// returns the former value.
func (t *Tx) store(table, key string, stored []byte) (before []byte, err error) {
	if t.sums == nil {
		if t.sums, err = readSums(t.tx); err != nil {
			return nil, err
		}
	}
	bucket := t.tx.Bucket([]byte(table))
	if present := bucket.Get([]byte(key)); present != nil {
		before = append([]byte{}, present...)
	}
	if stored == nil {
		err = bucket.Delete([]byte(key))
	} else {
		err = bucket.Put([]byte(key), stored)
	}
	if err != nil {
		return nil, err
	}
	if before != nil {
		t.sums.table(table).add(before, -1)
	}
	if stored != nil {
		t.sums.table(table).add(stored, 1)
	}
	return before, nil
}
