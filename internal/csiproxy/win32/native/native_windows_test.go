package native

import (
	"context"
	"errors"
	"testing"
)

// Package host answers a caller whose context ends. Here await returns only when the
// call has ended: the lock of a volume must not be released while a format of it can
// still happen.
func TestAwait_doesNotLeaveACallBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := false
	if _, err := await(ctx, make(gate, 1), func() (int, error) {
		cancel()
		over = true
		return 1, nil
	}); err != nil || !over {
		t.Errorf("over %v, %v", over, err)
	}
}

func TestAwait_beginsNothingForACallerWhoIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := make(gate, 1)
	for range 20 { // whichever of the two ways is taken
		if _, err := await(ctx, slow, func() (int, error) { t.Error("it was called"); return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	slow <- struct{}{}
	if err := awaitError(ctx, slow, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with no slow call free: %v", err)
	}
}
