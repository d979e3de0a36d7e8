package world

import (
	"container/heap"
	"time"
)

// event is a transition that is due at a time. It has the ID of its subject, so that it
// can be saved. It is ignored if the subject has another Gen by then.
type event struct {
	Due   time.Time
	Order int64
	Kind  eventKind
	ID    string // of the volume, snapshot, instance or fast restore
	At    string // instance of an attachment
	Gen   int64
}

type eventKind string

// Kinds of events.
const (
	volumeMade      eventKind = "volume-made"
	volumeGone      eventKind = "volume-gone"
	attachDone      eventKind = "attach-done"
	detachDone      eventKind = "detach-done"
	modifyOptimizes eventKind = "modify-optimizes"
	modifyDone      eventKind = "modify-done"
	snapshotDone    eventKind = "snapshot-done"
	instanceMoves   eventKind = "instance-moves"
	restoreMoves    eventKind = "restore-moves"
)

// events is a heap by time, then by order.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].Due.Equal(e[j].Due) {
		return e[i].Due.Before(e[j].Due)
	}
	return e[i].Order < e[j].Order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) {
	if one, ok := x.(event); ok {
		*e = append(*e, one)
	}
}

// Pop implements heap.Interface.
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// schedule adds an event for the end of a transition. It returns the event's Gen, which
// the subject stores, and when it is due.
func (w *World) schedule(takes Takes, e event) (gen int64, due time.Time) {
	return w.scheduleAt(w.now().Add(takes.pick(w.random)), e)
}

func (w *World) scheduleAt(due time.Time, e event) (gen int64, at time.Time) {
	e.Due, e.Order = due, w.order()
	if e.Gen == 0 {
		e.Gen = e.Order
	}
	heap.Push(&w.Events, e)
	return e.Gen, due
}

// advance applies every event that is due, in order.
func (w *World) advance() {
	if w.closed {
		return
	}
	now := w.now()
	for len(w.Events) > 0 && !w.Events[0].Due.After(now) {
		e, ok := heap.Pop(&w.Events).(event)
		if !ok {
			return
		}
		w.dirty = true
		w.apply(e)
	}
}

func (w *World) apply(e event) {
	switch e.Kind {
	case volumeMade, volumeGone, modifyOptimizes, modifyDone:
		if v := w.Volumes[e.ID]; v != nil {
			w.applyVolume(v, e)
		}
	case attachDone, detachDone:
		v := w.Volumes[e.ID]
		if v == nil {
			return
		}
		if a := v.at(e.At); a != nil && a.Gen == e.Gen {
			w.applyAttachment(v, a, e)
		}
	case snapshotDone:
		if s := w.Snapshots[e.ID]; s != nil && s.Gen == e.Gen {
			w.finishSnapshot(s)
		}
	case instanceMoves:
		if i := w.Instances[e.ID]; i != nil && i.Gen == e.Gen {
			w.moveInstance(i)
		}
	case restoreMoves:
		if f := w.FastRestores[e.ID]; f != nil && f.Gen == e.Gen {
			w.moveRestore(f)
		}
	}
}

func (w *World) applyVolume(v *volume, e event) {
	switch {
	case e.Kind == volumeMade && v.State == creating:
		w.finishCreate(v)
	case e.Kind == volumeGone && v.State == deleting:
		w.forgetVolume(v)
	case e.Kind == modifyOptimizes && v.Last != nil && v.Last.Gen == e.Gen:
		w.optimizeModification(v)
	case e.Kind == modifyDone && v.Last != nil && v.Last.Gen == e.Gen:
		w.finishModification(v)
	}
}

func (w *World) applyAttachment(v *volume, a *attachment, e event) {
	if e.Kind == attachDone {
		w.finishAttach(v, a)
		return
	}
	w.finishDetach(v, a)
}

// arm sets the timer to the next event.
func (w *World) arm() {
	if w.closed || len(w.Events) == 0 {
		w.disarm()
		return
	}
	next := w.Events[0].Due
	if w.timer != nil && w.armed.Equal(next) {
		return
	}
	w.disarm()
	w.armed = next
	w.firing.Add(1)
	w.alarms++
	alarm := w.alarms
	w.timer = w.clock.AfterFunc(max(next.Sub(w.now()), 0), func() { w.fire(alarm) })
}

// disarm stops the timer. One that fires already finds no event due, or a closed world.
func (w *World) disarm() {
	if w.timer == nil {
		return
	}
	if w.timer() {
		w.firing.Done()
	}
	w.timer = nil
}

// fire is called by the timer. If another timer was set while it waited for the lock, that
// one stays.
func (w *World) fire(alarm int64) {
	defer w.firing.Done()
	var err error
	w.begin()
	if w.alarms == alarm {
		w.timer = nil
	}
	w.end(&err)
}
