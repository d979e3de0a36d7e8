package resize

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// meeting is a driver that answers a call when calls of both kinds are there.
type meeting struct {
	mu   sync.Mutex
	here map[string]bool
	both chan struct{}
}

func (m *meeting) before(ctx context.Context, rpc string, _ any) error {
	if rpc != expandRPC && rpc != modifyRPC {
		return nil
	}
	m.mu.Lock()
	if m.here[rpc] = true; len(m.here) == 2 {
		select {
		case <-m.both:
		default:
			close(m.both)
		}
	}
	m.mu.Unlock()
	select {
	case <-m.both:
		return nil
	case <-ctx.Done():
		return status.Error(codes.DeadlineExceeded, "the other call did not come")
	}
}

func (w *world) rendezvous() *meeting {
	m := &meeting{here: map[string]bool{}, both: make(chan struct{})}
	w.driver.Before = m.before
	return m
}

// A claim that grows and changes its class has both calls under way at
// once, and the two outcomes do not overwrite each other.
func TestTogether_callsForBothAtOnce(t *testing.T) {
	w := newWorld(t, class("fast"))
	w.rendezvous()
	w.change(asking(2))
	w.change(wanting("fast"))
	w.run(Options{Together: true})
	w.has("fast")
	w.reaches("NodeResizePending", 2)
}

// The same in either order: the second change is requested while the first is in
// flight.
func TestTogether_startsTheSecondChangeDuringTheFirst(t *testing.T) {
	for first, order := range map[string]bool{"size": true, "class": false} {
		t.Run(first+" first", func(t *testing.T) {
			w := newWorld(t, class("fast"))
			m := w.rendezvous()
			w.run(Options{Together: true})
			changes := []func(){func() { w.change(asking(2)) }, func() { w.change(wanting("fast")) }}
			if !order {
				changes[0], changes[1] = changes[1], changes[0]
			}
			changes[0]()
			w.Eventually(func() error {
				m.mu.Lock()
				defer m.mu.Unlock()
				if len(m.here) == 0 {
					return fmt.Errorf("no call")
				}
				return nil
			})
			changes[1]()
			w.has("fast")
			w.reaches("NodeResizePending", 2)
		})
	}
}

// Other drivers answer Aborted to a second call for a volume.
func TestTogether_isOffForOtherDrivers(t *testing.T) {
	w := newWorld(t, class("fast"))
	var mu sync.Mutex
	under := 0
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc != expandRPC && rpc != modifyRPC {
			return nil
		}
		mu.Lock()
		under++
		now := under
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		under--
		mu.Unlock()
		if now > 1 {
			t.Errorf("%d calls are under way", now)
		}
		return nil
	}
	w.change(asking(2))
	w.change(wanting("fast"))
	w.run()
	w.has("fast")
	w.reaches("NodeResizePending", 2)
}
