package cloud

import (
	"context"
	"time"
)

// nextLook is when to look: when all are due that are due shortly after the
// first, and when the budget of looks allows. Crowds that have drifted apart are
// brought together again: each costs looks for as long as they last.
func (w *watch[V]) nextLook() (at time.Time, any bool) {
	for _, one := range w.waits {
		if one.looking == nil && (!any || one.due.Before(at)) {
			at, any = one.due, true
		}
	}
	if !any {
		return at, false
	}
	near, far, nears, fars := at, at, 0, 0
	for _, one := range w.waits {
		switch later := one.due.Sub(at); {
		case one.looking != nil || later > crowded:
		case later <= together:
			near, nears = latest(near, one.due), nears+1
		default:
			far, fars = latest(far, one.due), fars+1
		}
	}
	if at = near; fars >= many && fars*5 >= nears {
		at = far
	}
	if allowed := w.budget.next(); allowed.After(at) {
		at = allowed
	}
	return at, true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// start looks at what is due, and at what may be done already where a describe
// has room for it.
func (w *watch[V]) start() {
	now := time.Now()
	keys := map[string]bool{}
	var due []*wait[V]
	for _, one := range w.waits {
		if one.looking == nil && !one.due.After(now) {
			due, keys[one.key] = append(due, one), true
		}
	}
	room := (filterLimit - len(keys)%filterLimit) % filterLimit
	for _, one := range w.waits {
		if room == 0 {
			break
		}
		halfway := now.Sub(one.since) >= one.due.Sub(one.since)/2
		if one.looking == nil && one.due.After(now) && one.looks == 0 && halfway {
			due = append(due, one)
			if !keys[one.key] {
				keys[one.key] = true
				room--
			}
		}
	}
	for len(due) > 0 {
		due = due[w.startOne(now, due):]
	}
}

// startOne begins a look for as many of the waits as one describe takes, and
// says for how many.
func (w *watch[V]) startOne(now time.Time, due []*wait[V]) int {
	keys := make([]string, 0, min(len(due), filterLimit))
	has := map[string]bool{}
	n := 0
	for _, one := range due {
		if !has[one.key] {
			if len(keys) == filterLimit {
				break
			}
			has[one.key] = true
			keys = append(keys, one.key)
		}
		n++
	}
	ctx, cancel := context.WithCancel(w.ctx)
	l := &look[V]{began: now, waits: due[:n:n], cancel: cancel, live: n, open: n,
		done: map[string][]time.Duration{}, not: map[string][]time.Duration{}}
	for _, one := range l.waits {
		one.looking = l
	}
	w.budget.spend()
	w.tasks.Go(func() {
		defer cancel()
		w.show(ctx, l, keys)
	})
	return n
}

// show does a look and shows its waits what it found.
func (w *watch[V]) show(ctx context.Context, l *look[V], keys []string) {
	values, err := w.look(ctx, keys)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range l.waits {
		if one.left || one.looking != l {
			continue
		}
		seen := observation[V]{err: err}
		if err == nil {
			seen.value, seen.found = values[one.key]
		}
		one.seen <- seen
	}
}
