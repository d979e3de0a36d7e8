package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A set is not idle while a call runs or a change has not reached a queue; a
// key that failed and waits for its next attempt delays no caller.
func TestSet_isIdleWhenNothingIsDue(t *testing.T) {
	const processed = "2"
	running := make(chan struct{})
	r := &recorder{}
	r.do = func(ctx context.Context, key string, _ int) (time.Duration, error) {
		switch key {
		case "slow":
			select {
			case <-running:
			case <-ctx.Done():
			}
		case "failing":
			return 0, errors.New("asked to fail")
		}
		return 0, nil
	}
	opened, set := run(t, r)
	if err := set.Await(t.Context(), set.Idle); err != nil {
		t.Fatal(err)
	}
	put(t, opened, "slow", processed)
	if set.Idle() { // the change is stored, whether or not the queue has it
		t.Error("idle while a change was on its way")
	}
	for <-r.keys != "slow" {
		continue
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := set.Await(ctx, set.Idle); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("idle while a call runs: %v", err)
	}
	close(running)
	put(t, opened, "failing", processed)
	if err := set.Await(t.Context(), set.Idle); err != nil {
		t.Fatal(err)
	}
	if state := set.Queue("recorder").State("failing"); state.LastError == nil {
		t.Error("idle before the key was tried")
	}
}

func TestSet_isNotIdleBeforeItRuns(t *testing.T) {
	if set := NewSet(nil, Controller{Name: "none"}); set.Idle() {
		t.Error("idle before it knows its keys")
	}
}

func TestAwait_callsAgainAfterNotify(t *testing.T) {
	set := NewSet(nil)
	calls := 0
	if err := set.Await(t.Context(), func() bool {
		if calls++; calls == 1 {
			set.Notify() // between the first call and the wait
		}
		return calls == 2
	}); err != nil {
		t.Error(err)
	}
}
