package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// hung is a call that fails as soon as it is released, after so many failures that the
// next try is minutes away.
func hung(t *testing.T) (r *recorder, opened *store.Store, set *Set, letGo func()) {
	t.Helper()
	release := make(chan struct{})
	r = &recorder{do: func(_ context.Context, key string, call int) (time.Duration, error) {
		if key != "early" || call > 1 {
			return 0, nil
		}
		<-release
		return 0, errors.New("it hung")
	}}
	opened, set = run(t, r)
	r.expect(t, "early")
	queue := set.Queue("recorder")
	queue.mu.Lock()
	queue.items["early"].Attempts = 20
	queue.mu.Unlock()
	return r, opened, set, func() { close(release) }
}

// A key that the user changes while its call hangs is requeued as soon as that call
// fails, and not after the call's back-off.
func TestSet_aChangeDuringAFailingCallIsNotForTheBackOff(t *testing.T) {
	r, opened, _, letGo := hung(t)
	put(t, opened, "early", "2")
	put(t, opened, "other", "1")
	r.expect(t, "other") // so the change before it was handed out, too
	letGo()
	r.expectSoon(t, "early")
}

// The same if the change is handed out a moment after the failure.
func TestSet_aChangeThatArrivesLateIsNotForTheBackOff(t *testing.T) {
	r, _, set, letGo := hung(t)
	letGo()
	for set.Queue("recorder").State("early").LastError == nil {
		time.Sleep(time.Millisecond)
	}
	set.Queue("recorder").changed("early", nil)
	r.expectSoon(t, "early")
}

// So is the change by another controller's call.
func TestSet_aChangeByAnotherCallIsNotForTheBackOff(t *testing.T) {
	r, opened, _, letGo := hung(t)
	putAs(t, opened, &store.Writer{}, "early", "2")
	put(t, opened, "other", "1")
	r.expect(t, "other") // so the change before it was handed out, too
	letGo()
	r.expectSoon(t, "early")
}

// A driver that comes while the first call for it hangs is asked at once.
func TestSet_aDriverThatComesDuringAFailingCallIsAsked(t *testing.T) {
	r, _, set, letGo := hung(t)
	set.Retry()
	letGo()
	r.expectSoon(t, "early")
}

// A call that failed and was started again meanwhile is not called a third time
// for the pause that had just ended.
func TestQueue_aPauseThatEndedIsNoReasonForAnotherCall(t *testing.T) {
	fail := make(chan error)
	r := &recorder{do: func(context.Context, string, int) (time.Duration, error) { return 0, <-fail }}
	r.calls, r.keys = map[string][]time.Time{}, make(chan string, 100)
	q := newQueue(r.controller())
	q.start(t.Context())
	defer q.stop()
	q.Add("k")
	r.expect(t, "k")
	fail <- errors.New("no")
	q.mu.Lock()
	for q.items["k"].timer == nil {
		q.mu.Unlock()
		time.Sleep(time.Millisecond)
		q.mu.Lock()
	}
	q.add("k")
	q.mu.Unlock()
	r.expect(t, "k")
	q.wake("k")
	fail <- nil
	for len(r.keys) == 0 && q.State("k") != (State{}) {
		time.Sleep(time.Millisecond)
	}
	r.quiet(t, 50*time.Millisecond)
}

// expectSoon is expect long before the back-off ends.
func (r *recorder) expectSoon(t *testing.T, key string) {
	t.Helper()
	select {
	case got := <-r.keys:
		if got != key {
			t.Fatalf("processed %s; want %s", got, key)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s is still in its back-off", key)
	}
}
