package store

import (
	"errors"
	"fmt"
)

// change is one caller's part of a commit.
type change struct {
	writer *Writer
	do     func(*Tx) error
	done   bool
	err    error
}

// Update makes all changes of do or none, and returns when they are on disk.
// Concurrent calls share one commit, so that volumes do not wait for the disk one
// after the other. do may run on another goroutine, and runs once.
func (s *Store) Update(do func(*Tx) error) error { return s.UpdateAs(nil, do) }

// UpdateAs is Update by a writer, which watchers see in the changes.
func (s *Store) UpdateAs(writer *Writer, do func(*Tx) error) error {
	if err := s.points.HitFor("store/change", writer.name()); err != nil {
		return fmt.Errorf("the host's store %s: %w", s.path, err)
	}
	own := &change{writer: writer, do: do}
	s.arrivals.Lock()
	s.arrived = append(s.arrived, own)
	s.arrivals.Unlock()
	s.commits.Lock()
	defer s.commits.Unlock()
	if !own.done { // else another caller committed it
		s.arrivals.Lock()
		all := s.arrived
		s.arrived = nil
		s.arrivals.Unlock()
		s.commit(all)
	}
	if own.err != nil {
		return fmt.Errorf("the host's store %s: %w", s.path, own.err)
	}
	return nil
}

// errOtherPanicked is the error of changes whose commit ended with another caller's panic.
var errOtherPanicked = errors.New("nothing was written, since another change panicked")

// commit makes all changes in one transaction, except those that fail.
func (s *Store) commit(all []*change) {
	defer func() { // after a panic that is recovered, such as by a server
		for _, c := range all {
			if !c.done {
				c.done, c.err = true, errOtherPanicked
			}
		}
	}()
	changes, err := s.try(all)
	for _, c := range all {
		if c.done = true; err != nil && c.err == nil {
			c.err = err
		}
	}
	if err == nil {
		s.history.publish(changes)
	}
}

func (s *Store) try(all []*change) ([]Change, error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	current := &Tx{tx: tx, vault: s.vault}
	dirty := false
	for _, c := range all {
		before := len(current.changes)
		current.undo = nil
		if c.err = c.do(current); c.err == nil {
			dirty = dirty || len(current.undo) > 0
			for i := range current.changes[before:] {
				current.changes[before+i].Writer = c.writer
			}
			continue
		}
		current.changes = current.changes[:before]
		if err := current.rollback(); err != nil {
			return nil, err
		}
	}
	if !dirty {
		return nil, nil // nothing to write: no fsync
	}
	if current.sums != nil { // a table was written, not only what was offered
		if err := current.sums.write(tx); err != nil {
			return nil, err
		}
	}
	if err := s.points.Hit("store/commit"); err != nil {
		return nil, err
	}
	return current.changes, tx.Commit()
}

// written is the value before a write.
type written struct {
	bucket, key string
	before      []byte // as it was stored; nil for nothing
}

func (t *Tx) put(bucket, key string, data []byte) error {
	before, err := t.store(bucket, key, withChecksum(bucket, key, data))
	if err != nil {
		return fmt.Errorf("write %s %q: %w", bucket, key, err)
	}
	t.undo = append(t.undo, written{bucket, key, before})
	return nil
}

func (t *Tx) remove(bucket, key string) error {
	if t.tx.Bucket([]byte(bucket)).Get([]byte(key)) == nil {
		return nil
	}
	before, err := t.store(bucket, key, nil)
	if err != nil {
		return fmt.Errorf("remove %s %q: %w", bucket, key, err)
	}
	t.undo = append(t.undo, written{bucket, key, before})
	return nil
}

// rollback undoes the writes of a change that failed. The other changes of the commit
// stay.
func (t *Tx) rollback() error {
	var failed []error
	for i := len(t.undo) - 1; i >= 0; i-- {
		w := t.undo[i]
		if w.bucket == metaBucket {
			failed = append(failed, t.forgetOffered(w.key))
			continue
		}
		_, err := t.store(w.bucket, w.key, w.before)
		failed = append(failed, err)
	}
	t.undo = nil
	return errors.Join(failed...)
}
