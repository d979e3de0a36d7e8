package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"go.etcd.io/bbolt"
)

// store writes a batch in one transaction. If the journal cannot be written, for
// example because the disk is full, only the batch is lost.
func (j *Journal) store(batch []Entry) {
	if j.db == nil {
		return
	}
	stored := j.stored
	err := guard(func() error {
		return j.db.Update(func(tx *bbolt.Tx) error {
			file := open(tx)
			for _, entry := range condense(batch) {
				if err := file.put(entry); err != nil {
					return err
				}
			}
			stored += file.grown
			dropped, err := file.trim(stored, j.now().Add(-longest))
			stored -= dropped
			return err
		})
	})
	switch {
	case err == nil:
		j.stored, j.mute = stored, false
	case errors.Is(err, errDamaged):
		j.renew(err)
	case !j.mute:
		j.mute = true
		j.logger.Warn("the journal is not written", "file", j.path, "error", err)
	}
}

// renew continues with an empty file, or none.
func (j *Journal) renew(cause error) {
	err := j.shut()
	if err == nil {
		err = j.replace(cause)
	}
	if err != nil {
		j.logger.Warn("the journal stays closed until the host is started again", "file", j.path, "error", err)
	}
}

// file is the buckets in one transaction.
type file struct {
	entries, identities, about *bbolt.Bucket
	grown                      int
}

func open(tx *bbolt.Tx) *file {
	return &file{
		entries: tx.Bucket([]byte(entryBucket)), identities: tx.Bucket([]byte(identityBucket)),
		about: tx.Bucket([]byte(aboutBucket)),
	}
}

func sequenceKey(sequence uint64) []byte { return binary.BigEndian.AppendUint64(nil, sequence) }

func aboutPrefix(ref Ref) []byte { return []byte(ref.Kind + "\x00" + ref.Key + "\x00") }

func aboutKey(ref Ref, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(aboutPrefix(ref), sequence)
}

// put writes an entry, or replaces the one that it repeats or ends.
func (f *file) put(entry condensed) error {
	identity := entry.ID
	for _, before := range []string{identity, entry.replaced} {
		earlier, known, err := f.find(before)
		if err != nil {
			return err
		}
		if !known {
			continue
		}
		entry.follow(earlier)
		if err := f.remove(earlier, before); err != nil {
			return err
		}
	}
	data, err := json.Marshal(entry.Entry)
	if err != nil {
		return err
	}
	key := sequenceKey(entry.Sequence)
	failed := []error{f.entries.Put(key, data), f.identities.Put([]byte(identity), key)}
	for _, ref := range entry.refs() {
		failed = append(failed, f.about.Put(aboutKey(ref, entry.Sequence), nil))
	}
	f.grown++
	return errors.Join(failed...)
}

func (f *file) find(identity string) (Entry, bool, error) {
	if identity == "" {
		return Entry{}, false, nil
	}
	key := f.identities.Get([]byte(identity))
	if key == nil {
		return Entry{}, false, nil
	}
	data := f.entries.Get(key)
	if data == nil {
		return Entry{}, false, nil
	}
	entry, err := decode(data)
	return entry, err == nil, err
}

func (f *file) remove(entry Entry, identity string) error {
	failed := []error{f.entries.Delete(sequenceKey(entry.Sequence)), f.identities.Delete([]byte(identity))}
	for _, ref := range entry.refs() {
		failed = append(failed, f.about.Delete(aboutKey(ref, entry.Sequence)))
	}
	f.grown--
	return errors.Join(failed...)
}
