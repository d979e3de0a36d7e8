// Package progress is how long operations report how far they are. Code that works for
// more than a moment begins a Task in the context that it was given and sets what is
// done, which costs one atomic store. Whoever started the work lists the tasks that run.
// Nothing is recorded, and without a Tracker in the context nothing is kept.
package progress

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Unit is what Done and Total count.
type Unit string

// The units.
const (
	Bytes   Unit = "bytes"
	Percent Unit = "percent"
)

// Operation is a task that runs.
type Operation struct {
	// Call is the RPC for which the work is done, Object the ID or the name in its request.
	Call, Object string
	// Doing is what is done, such as "copying".
	Doing   string
	Started time.Time
	// Done and Total are in Unit. Total is 0 if it is not known.
	Done, Total int64
	Unit        Unit
}

// Tracker has the tasks that run. The zero value is ready to use.
type Tracker struct {
	mu      sync.Mutex
	running map[*Task]struct{}
	remote  map[string]remote // by the ID of the work
}

// call is what a context knows about the work.
type call struct {
	tracker      *Tracker
	name, object string
}

type key struct{}

// For returns a context whose tasks belong to a call for an object.
func (t *Tracker) For(ctx context.Context, name, object string) context.Context {
	return context.WithValue(ctx, key{}, call{tracker: t, name: name, object: object})
}

// List returns the tasks that run and the work of other systems, the oldest first.
func (t *Tracker) List() []Operation {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetOld(time.Now())
	all := make([]Operation, 0, len(t.running)+len(t.remote))
	for task := range t.running {
		all = append(all, task.operation())
	}
	for _, one := range t.remote {
		all = append(all, one.Operation)
	}
	slices.SortFunc(all, func(a, b Operation) int { return a.Started.Compare(b.Started) })
	return all
}

// Task is one part of the work for a call. A nil Task is valid and reports to nobody.
type Task struct {
	of      call
	doing   string
	unit    Unit
	started time.Time
	total   int64
	done    atomic.Int64
}

// Begin starts a task of total bytes, 0 if that is not known. The caller must end it.
func Begin(ctx context.Context, doing string, total int64) *Task {
	return begin(ctx, doing, total, Bytes)
}

// BeginPercent starts a task of which only the percentage is known, because another system
// does the work. The caller must end it.
func BeginPercent(ctx context.Context, doing string) *Task {
	return begin(ctx, doing, wholePercent, Percent)
}

// wholePercent is the Total of work that is counted in Percent.
const wholePercent = 100

func begin(ctx context.Context, doing string, total int64, unit Unit) *Task {
	of, tracked := ctx.Value(key{}).(call)
	if !tracked {
		return nil
	}
	task := &Task{of: of, doing: doing, unit: unit, started: time.Now(), total: total}
	of.tracker.mu.Lock()
	defer of.tracker.mu.Unlock()
	if of.tracker.running == nil {
		of.tracker.running = map[*Task]struct{}{}
	}
	of.tracker.running[task] = struct{}{}
	return task
}

// Set reports how much is done.
func (t *Task) Set(done int64) {
	if t != nil {
		t.done.Store(done)
	}
}

// Add reports that more is done.
func (t *Task) Add(more int64) {
	if t != nil {
		t.done.Add(more)
	}
}

// End removes the task, whether it was completed or not.
func (t *Task) End() {
	if t == nil {
		return
	}
	t.of.tracker.mu.Lock()
	defer t.of.tracker.mu.Unlock()
	delete(t.of.tracker.running, t)
}

func (t *Task) operation() Operation {
	return Operation{
		Call: t.of.name, Object: t.of.object, Doing: t.doing, Started: t.started,
		Done: t.done.Load(), Total: t.total, Unit: t.unit,
	}
}
