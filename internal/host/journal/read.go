package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// Of returns the events and steps of an object, including those of earlier objects
// of the same name, whose UID differs.
func (j *Journal) Of(kind, key string) (Story, error) {
	story := Story{Events: []Event{}, Steps: []StepEntry{}}
	err := j.view(func(file *file) error {
		prefix := aboutPrefix(Ref{Kind: kind, Key: key})
		cursor := file.about.Cursor()
		for at, _ := cursor.Seek(prefix); bytes.HasPrefix(at, prefix); at, _ = cursor.Next() {
			data := file.entries.Get(at[len(at)-8:])
			if data == nil {
				continue
			}
			entry, err := decode(data)
			if err != nil {
				return err
			}
			story.add(entry)
		}
		return nil
	})
	story.order()
	return story, err
}

func (s *Story) add(entry Entry) {
	if entry.Event != nil {
		s.Events = append(s.Events, *entry.Event)
		return
	}
	s.Steps = append(s.Steps, *entry.Step)
}

func (s *Story) order() {
	slices.SortStableFunc(s.Events, func(a, b Event) int { return a.Last.Compare(b.Last) })
	slices.SortStableFunc(s.Steps, func(a, b StepEntry) int { return a.Started.Compare(b.Started) })
}

// After returns the entries after a sequence number, and the number to continue
// from.
func (j *Journal) After(sequence uint64) ([]Entry, uint64, error) {
	var entries []Entry
	last := sequence
	err := j.view(func(file *file) error {
		cursor := file.entries.Cursor()
		for key, data := cursor.Seek(sequenceKey(sequence + 1)); key != nil; key, data = cursor.Next() {
			entry, err := decode(data)
			if err != nil {
				return err
			}
			entries = append(entries, entry)
			last = binary.BigEndian.Uint64(key)
		}
		return nil
	})
	return entries, last, err
}

// view writes pending entries and reads.
func (j *Journal) view(read func(*file) error) error {
	j.drain()
	j.disk.Lock()
	defer j.disk.Unlock()
	if j.db == nil {
		return nil
	}
	err := guard(func() error { return j.db.View(func(tx *bbolt.Tx) error { return read(open(tx)) }) })
	if errors.Is(err, errDamaged) {
		j.renew(err)
	}
	if err != nil {
		return fmt.Errorf("the host's journal %s: %w", j.path, err)
	}
	return nil
}

// Watch follows the entries after a sequence number. It is used by one goroutine.
type Watch struct {
	journal  *Journal
	sequence uint64
}

// Watch follows every entry after the sequence number; 0 begins with the oldest
// that is kept. It costs nothing while it is not asked.
func (j *Journal) Watch(after uint64) *Watch { return &Watch{journal: j, sequence: after} }

// Sequence is that of the newest entry.
func (j *Journal) Sequence() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sequence
}

// Next returns the next entries, and waits for one if there are none. An entry whose
// count rises is returned again; counts in between may be left out.
func (w *Watch) Next(ctx context.Context) ([]Entry, error) {
	for {
		w.journal.mu.Lock()
		arrived := w.journal.arrived
		w.journal.mu.Unlock()
		entries, last, err := w.journal.After(w.sequence)
		if err != nil || len(entries) > 0 {
			w.sequence = last
			return entries, err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
