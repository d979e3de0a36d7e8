package volumes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	// figuresAge is how old the figures of a driver may be.
	figuresAge = 10 * time.Second
	// figureCalls is how many calls ask one driver for figures at a time.
	figureCalls = 8
	// figuresWait is how long a caller waits for figures that were never asked for.
	figuresWait = time.Second
)

// figures are what drivers say about room. They are asked for in the background, and only
// while there is a reader.
type figures struct {
	usage figureSet[Usage] // by the name of a use
	rooms figureSet[int64] // by driver
}

// question asks a driver for one figure.
type question[V any] struct {
	key, driver string
	// ask returns nil if the driver does not say.
	ask func(context.Context) (*V, error)
}

// figureSet has figures of one kind, up to figuresAge old. The zero value is ready to use.
type figureSet[V any] struct {
	slots concurrency.Queue // by driver

	mu    sync.Mutex
	known map[string]*figure[V]
}

type figure[V any] struct {
	concurrency.Background[*V]
	// next is what the next call asks: the path of a volume may be another one by then.
	next  atomic.Pointer[question[V]]
	asked atomic.Bool
}

// current returns what is known for the keys of the questions, and forgets all other keys.
// It waits for figures that were never asked for, and not for a driver that hangs.
func (s *figureSet[V]) current(questions []question[V]) map[string]*V {
	var mu sync.Mutex
	known := make(map[string]*V, len(questions))
	var group sync.WaitGroup
	for key, one := range s.renew(questions) {
		group.Go(func() {
			patience := figuresWait
			if one.asked.Swap(true) {
				patience = 0
			}
			answer := one.Get(patience)
			mu.Lock()
			defer mu.Unlock()
			known[key] = answer.Value
		})
	}
	group.Wait()
	return known
}

// renew makes the set that of the questions, and returns it.
func (s *figureSet[V]) renew(questions []question[V]) map[string]*figure[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[string]*figure[V], len(questions))
	for _, q := range questions {
		one := s.known[q.key]
		if one == nil {
			one = &figure[V]{}
			one.Fresh, one.Ask = figuresAge, func(ctx context.Context) *V { return s.ask(ctx, one.next.Load()) }
		}
		one.next.Store(&q)
		now[q.key] = one
	}
	s.known = now
	return now
}

// ask returns nil if the driver fails.
func (s *figureSet[V]) ask(ctx context.Context, q *question[V]) *V {
	leave, err := s.slots.Enter(ctx, q.driver, figureCalls)
	if err != nil {
		return nil
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, StatsTimeout)
	defer cancel()
	value, err := q.ask(ctx)
	if err != nil {
		return nil
	}
	return value
}
