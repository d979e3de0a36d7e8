// Package work runs the controllers' queues: one queue per kind of work, one worker at a
// time per key, exponential backoff after failures, and workers for each class and
// namespace. The queues are client-go's, and have the metrics of the sidecars
// (workqueue_*), so that their alerts keep working.
package work

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// The default backoff and number of workers of a queue. They are those of the sidecars.
const (
	DefaultRetryStart = time.Second
	DefaultRetryMax   = 5 * time.Minute
	DefaultWorkers    = 100
)

// Retry is the pause after a failure: Start, doubling up to Max.
type Retry struct {
	Start, Max time.Duration
}

// Handler processes one key. If after > 0, the queue adds the key again after that time,
// without backoff: a key that waits for a condition has not failed. After an error the
// queue adds it again with backoff.
type Handler func(ctx context.Context, key string) (after time.Duration, err error)

// Options of a queue. Zero values mean the defaults above.
type Options struct {
	Name string // in metrics and logs
	// Workers is how many keys of one call and class are in progress at most. Several
	// classes together have up to twice as many, unless it is 1.
	Workers int
	// Flow returns the flow of a key; nil means one flow for all. It is called without
	// locks, by one goroutine, when a key becomes due. It must not block.
	Flow       func(key string) Flow
	Retry      Retry
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for no metrics
}

// Queue is a set of keys to work on. It is safe for concurrent use.
type Queue struct {
	options Options
	items   workqueue.TypedRateLimitingInterface[string]
	fair    *fair // the order of the items

	mu     sync.Mutex
	failed map[string]error // by key, why the last work on it failed
}

// New makes a queue. It accepts keys at once and processes them in Run.
func New(o Options) *Queue {
	if o.Workers <= 0 {
		o.Workers = DefaultWorkers
	}
	if o.Retry.Start <= 0 {
		o.Retry.Start = DefaultRetryStart
	}
	if o.Retry.Max <= 0 {
		o.Retry.Max = DefaultRetryMax
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{options: o, fair: newFair(o.Workers, o.Flow), failed: map[string]error{}}
	var provider workqueue.MetricsProvider
	if o.Registerer != nil {
		provider = newMetrics(o.Registerer)
	}
	q.items = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](o.Retry.Start, max(o.Retry.Start, o.Retry.Max)),
		workqueue.TypedRateLimitingQueueConfig[string]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
				Name: o.Name, MetricsProvider: provider,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
					Name: o.Name, MetricsProvider: provider, Queue: q.fair,
				}),
			}),
		})
	return q
}

// Add adds a key. A key that is already queued is processed once.
func (q *Queue) Add(key string) { q.items.Add(key) }

// AddAfter adds a key after a pause.
func (q *Queue) AddAfter(key string, pause time.Duration) { q.items.AddAfter(key, pause) }

// Forget resets a key's backoff, because the desired state has changed.
func (q *Queue) Forget(key string) { q.items.Forget(key) }

// Hurry processes at once the keys that wait after a failure of this kind and resets
// their backoff, because the cause is over.
func (q *Queue) Hurry(over func(error) bool) {
	for _, key := range q.failedOf(over) {
		q.items.Forget(key)
		q.items.Add(key)
	}
}

func (q *Queue) failedOf(kind func(error) bool) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []string
	for key, err := range q.failed {
		if kind(err) {
			keys = append(keys, key)
		}
	}
	return keys
}

// note records the last error of a key, until the key succeeds.
func (q *Queue) note(key string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		delete(q.failed, key)
		return
	}
	q.failed[key] = err
}

// Failures returns the number of consecutive failures of a key.
func (q *Queue) Failures(key string) int { return q.items.NumRequeues(key) }

// Len returns the number of keys that wait for a worker.
func (q *Queue) Len() int { return q.fair.count() }

// Stuck returns for how long all workers that a class may have, or all workers, have been
// busy without finishing a key; 0 while some are free.
func (q *Queue) Stuck() time.Duration { return q.fair.stuck() }

// Run processes keys until ctx ends, then waits for the keys in progress, whose handlers
// have the same ctx. It always returns nil. A queue runs once.
func (q *Queue) Run(ctx context.Context, handle Handler) error {
	stop := context.AfterFunc(ctx, q.items.ShutDown)
	defer stop()
	defer q.items.ShutDown()
	var working sync.WaitGroup
	defer working.Wait()
	// A worker starts when there is a key for it, so that an idle queue costs one
	// goroutine.
	for {
		for q.fair.choose() {
			key, ended := q.items.Get()
			if ended || ctx.Err() != nil {
				return nil
			}
			working.Go(func() { q.work(ctx, key, handle) })
		}
		select {
		case <-q.fair.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (q *Queue) work(ctx context.Context, key string, handle Handler) {
	defer q.items.Done(key)
	defer q.fair.finished(key) // before Done, after which the key may begin again
	after, err := handle(ctx, key)
	q.note(key, err)
	switch {
	case ctx.Err() != nil:
		// The next process, or the next holder of the lease, processes it.
	case err != nil:
		q.items.AddRateLimited(key)
		q.options.Logger.Warn("again later", "queue", q.options.Name, "key", key, "failures", q.items.NumRequeues(key), "error", err)
	default:
		q.items.Forget(key)
		if after > 0 {
			q.items.AddAfter(key, after)
		}
	}
}
