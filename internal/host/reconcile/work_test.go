package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The age of work that fails again and again is that of its first attempt.
func TestWork_beginsWithTheFirstAttemptAndEndsWithSuccess(t *testing.T) {
	q := newQueue(Controller{Name: "c", Do: func(context.Context, string) (time.Duration, error) { return 0, nil }})
	work := func() (all []Work) {
		q.Work(func(w Work) { all = append(all, w) })
		return all
	}
	q.Add("k") // nothing runs: the queue has not started
	first := work()
	if len(first) != 1 || !first[0].Due || first[0].Running || first[0].Began.IsZero() {
		t.Fatalf("a key that is due is %+v", first)
	}
	run := func(err error) {
		q.mu.Lock()
		it := q.items["k"]
		it.due, it.Running, it.Since = false, true, time.Now()
		q.waiting, q.busy = map[string][]string{}, map[string]int{"": 1}
		q.mu.Unlock()
		if got := work(); len(got) != 1 || !got[0].Running || got[0].Began != first[0].Began {
			t.Fatalf("while it runs it is %+v, it began %s", got, first[0].Began)
		}
		q.finish("k", "", 0, err)
	}
	fault := errors.New("asked to fail")
	for range 3 {
		run(fault)
		got := work()
		if len(got) != 1 || got[0].Began != first[0].Began || !errors.Is(got[0].LastError, fault) {
			t.Fatalf("after a failure it is %+v, it began %s", got, first[0].Began)
		}
		before := time.Now()
		q.Add("k")
		if got := work(); len(got) != 1 || !got[0].Due || got[0].DueSince.Before(before) || got[0].Began != first[0].Began {
			t.Fatalf("due again it is %+v, and not due since %s", got, before)
		}
	}
	run(nil)
	if got := work(); len(got) != 0 || q.Added() != 4 {
		t.Errorf("after the success there is %+v, added %d times", got, q.Added())
	}
}
