package journal

import (
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// FileName is the journal's file below the root directory.
	FileName = "journal.db"
	// most is how many entries are kept, and longest for how long. Both are applied
	// when entries are written.
	most    = 10_000
	longest = 24 * time.Hour
	// linger is how long the writer waits for more entries to write at once. A reader
	// does not wait for it.
	linger = 20 * time.Millisecond
)

// Journal is the open file. It is safe for concurrent use. Recording only notes
// in memory; one goroutine, which lives while there is something to write,
// writes it.
type Journal struct {
	path   string
	logger *slog.Logger
	now    func() time.Time

	// disk is held while the file is used.
	disk   sync.Mutex
	db     *bbolt.DB
	stored int  // entries in the file
	mute   bool // the last write failed, and was logged

	mu       sync.Mutex
	sequence uint64
	pending  []Entry
	writes   bool // the writer runs
	closed   bool
	arrived  chan struct{} // closed and replaced when something is recorded
	wake     chan struct{} // closed when the writer need not linger
	writer   sync.WaitGroup
}

// Record adds an event of an object.
func (j *Journal) Record(notice Notice) {
	now := j.now()
	j.add(Entry{Event: &Event{
		About: notice.About, Warning: notice.Warning, Reason: notice.Reason, Message: notice.Message,
		Count: 1, First: now, Last: now,
	}})
}

// Step adds the progress of a step. The end of a step replaces its beginning, and
// equal ends are counted.
func (j *Journal) Step(step StepEntry) {
	if step.Started.IsZero() {
		step.Started = j.now().Add(-step.Took)
	}
	step.Count, step.First = 1, step.Started
	j.add(Entry{Step: &step}.clone())
}

func (j *Journal) add(entry Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.sequence++
	entry.Sequence = j.sequence
	j.pending = append(j.pending, entry)
	if surplus := len(j.pending) - most; surplus > 0 {
		j.pending = append([]Entry(nil), j.pending[surplus:]...)
	}
	close(j.arrived)
	j.arrived = make(chan struct{})
	if !j.writes {
		j.writes = true
		j.writer.Go(j.write)
	}
}

// write writes pending entries until none are left.
func (j *Journal) write() {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-j.wake:
		}
		j.drain()
		j.mu.Lock()
		if len(j.pending) == 0 {
			j.writes = false
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		timer.Reset(linger)
	}
}

// drain writes the entries that are pending now.
func (j *Journal) drain() {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.mu.Lock()
	batch := j.pending
	j.pending = nil
	j.mu.Unlock()
	if len(batch) > 0 {
		j.store(batch)
	}
}

// Close writes the pending entries and closes the file. Entries recorded afterwards are
// lost.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	close(j.wake)
	j.mu.Unlock()
	j.writer.Wait()
	j.drain()
	j.disk.Lock()
	defer j.disk.Unlock()
	return j.shut()
}
