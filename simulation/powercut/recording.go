package powercut

import (
	"bufio"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
)

// Kind is a kind of event.
type Kind uint8

// The kinds of events.
const (
	Write Kind = iota
	// Zero is a discarded or zeroed range.
	Zero
	Flush
	// Mark is an instant that the test named, such as the end of an operation.
	Mark
)

// Event is one request to a recorded disk, or a mark.
type Event struct {
	Kind           Kind
	Offset, Length int64  // in bytes
	Data           []byte // of a write
	Label          string // of a mark
}

// Recording is what happened on a disk since an instant at which nothing was in its
// cache.
type Recording struct {
	Base   *Image
	Events []Event
	// Sector is the number of bytes that the disk writes wholly or not at all.
	Sector int64
	// Facts are the test's own, saved with the recording.
	Facts []byte
}

func (r *Recording) count(kind Kind) (n int) {
	for _, event := range r.Events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

// Writes counts the writes and discards.
func (r *Recording) Writes() int { return r.count(Write) + r.count(Zero) }

// Flushes counts the flushes.
func (r *Recording) Flushes() int { return r.count(Flush) }

// WithoutFlushes is the recording of a disk that ignores the flushes whose index, from
// 0, is chosen.
func (r *Recording) WithoutFlushes(ignored func(index int) bool) *Recording {
	lying := *r
	lying.Events = nil
	index := 0
	for _, event := range r.Events {
		if event.Kind == Flush {
			index++
			if ignored(index - 1) {
				continue
			}
		}
		lying.Events = append(lying.Events, event)
	}
	return &lying
}

// saved is a recording as a file has it.
type saved struct {
	Size   int64
	Base   map[int64][]byte
	Events []Event
	Sector int64
	Facts  []byte
}

func (r *Recording) saved() *saved {
	return &saved{Size: r.Base.size, Base: r.Base.content(), Events: r.Events, Sector: r.Sector, Facts: r.Facts}
}

func (s *saved) recording() *Recording {
	return &Recording{Base: imageOf(s.Size, s.Base), Events: s.Events, Sector: s.Sector, Facts: s.Facts}
}

// Save writes the recording to a file, from which Load reads it.
func (r *Recording) Save(path string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	packed, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(packed).Encode(r.saved()); err != nil {
		return fmt.Errorf("save the recording to %s: %w", path, err)
	}
	return packed.Close()
}

// Load reads a saved recording.
func Load(path string) (*Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	packed, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("read the recording %s: %w", path, err)
	}
	var content saved
	if err := gob.NewDecoder(packed).Decode(&content); err != nil {
		return nil, fmt.Errorf("read the recording %s: %w", path, err)
	}
	return content.recording(), nil
}
