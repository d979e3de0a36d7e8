package cloud

import (
	"context"
	"time"
)

// nextPoll returns when to poll next: when the waits are due that are due shortly after
// the first one, and when the budget allows. It merges groups of waits that have drifted
// apart, because each group costs separate describes. ok is false if every wait is in a
// poll already.
func (w *watch[V]) nextPoll() (at time.Time, ok bool) {
	for _, one := range w.waits {
		if one.poll == nil && (!ok || one.due.Before(at)) {
			at, ok = one.due, true
		}
	}
	if !ok {
		return at, false
	}
	near, far, nears, fars := at, at, 0, 0
	for _, one := range w.waits {
		switch later := one.due.Sub(at); {
		case one.poll != nil || later > shareManyWithin:
		case later <= shareWithin:
			near, nears = latest(near, one.due), nears+1
		default:
			far, fars = latest(far, one.due), fars+1
		}
	}
	if at = near; fars >= many && fars*5 >= nears {
		at = far
	}
	return latest(at, w.budget.next()), true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// start polls the waits that are due. If a describe has room, it also polls waits whose
// transition may have ended early.
func (w *watch[V]) start() {
	now := time.Now()
	keys := map[string]bool{}
	var due []*wait[V]
	for _, one := range w.waits {
		if one.poll == nil && !one.due.After(now) {
			due, keys[one.key] = append(due, one), true
		}
	}
	room := (filterLimit - len(keys)%filterLimit) % filterLimit
	for _, one := range w.waits {
		if room == 0 {
			break
		}
		halfway := now.Sub(one.since) >= one.due.Sub(one.since)/2
		if one.poll == nil && one.due.After(now) && one.vain == 0 && halfway {
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

// startOne starts a poll for as many of the waits as one describe takes, and
// returns how many those are.
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
	p := &poll[V]{began: now, waits: due[:n:n], cancel: cancel, live: n}
	for _, one := range p.waits {
		one.poll = p
	}
	w.budget.spend()
	w.tasks.Go(func() {
		defer cancel()
		w.show(ctx, p, keys)
	})
	return n
}

// show sends the describe of a poll, and sends the result to each of its waits.
func (w *watch[V]) show(ctx context.Context, p *poll[V], keys []string) {
	values, err := w.describe(ctx, keys)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range p.waits {
		if one.ended || one.poll != p {
			continue
		}
		seen := observation[V]{err: err}
		if err == nil {
			seen.value, seen.found = values[one.key]
		}
		one.seen <- seen
	}
}
