package volumes

import (
	"context"
	"sync"
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
	value *V // nil if it is not known
	at    time.Time
	// answered is closed when the call that runs has ended; nil if none runs.
	answered chan struct{}
}

// current returns what is known for the keys of the questions, and forgets all other keys.
// It waits for figures that were never asked for, and not for a driver that hangs.
func (a *figureSet[V]) current(ctx context.Context, questions []question[V]) map[string]*V {
	timer := time.NewTimer(figuresWait)
	defer timer.Stop()
	for _, answered := range a.askDue(ctx, questions) {
		select {
		case <-answered:
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := make(map[string]*V, len(a.known))
	for key, one := range a.known {
		known[key] = one.value
	}
	return known
}

// askDue asks the questions that are due, and returns what ends with the first answers to
// new ones.
func (a *figureSet[V]) askDue(ctx context.Context, questions []question[V]) (first []chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := make(map[string]*figure[V], len(questions))
	for _, q := range questions {
		one := a.known[q.key]
		if one == nil {
			one = &figure[V]{}
		}
		asked[q.key] = one
		if one.answered == nil && time.Since(one.at) >= figuresAge {
			one.answered = make(chan struct{})
			if one.at.IsZero() {
				first = append(first, one.answered)
			}
			// The call outlives the caller, and has a limit of its own.
			go a.ask(context.WithoutCancel(ctx), one, q)
		}
	}
	a.known = asked
	return first
}

func (a *figureSet[V]) ask(ctx context.Context, one *figure[V], q question[V]) {
	var value *V
	leave, err := a.slots.Enter(ctx, q.driver, figureCalls)
	if err == nil {
		bounded, cancel := context.WithTimeout(ctx, StatsTimeout)
		value, err = q.ask(bounded)
		cancel()
		leave()
	}
	if err != nil {
		value = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	one.value, one.at = value, time.Now()
	close(one.answered)
	one.answered = nil
}
