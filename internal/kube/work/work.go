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
	Flow  func(key string) Flow
	Retry Retry
	// Attempt is called before the work on a key. reason explains its error, or what the key
	// waits for if the error is nil; "" if that is unknown. Attempt may be nil.
	Attempt    func(ctx context.Context) (attempt context.Context, reason func(err error) string)
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for no metrics
}

// Queue is a set of keys to work on. It is safe for concurrent use.
type Queue struct {
	options Options
	items   workqueue.TypedRateLimitingInterface[string]
	fair    *fair // the order of the items

	mu    sync.Mutex
	begun map[string]begun // keys on which work has begun and is not done
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
	if o.Attempt == nil {
		o.Attempt = func(ctx context.Context) (context.Context, func(error) string) {
			return ctx, func(error) string { return "" }
		}
	}
	q := &Queue{options: o, fair: newFair(o.Workers, o.Flow), begun: map[string]begun{}}
	var provider workqueue.MetricsProvider
	if o.Registerer != nil {
		known := newMetrics(o.Registerer)
		known.ages.add(o.Name, q)
		provider = known
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

// Failures returns the number of consecutive failures of a key.
func (q *Queue) Failures(key string) int { return q.items.NumRequeues(key) }

// Len returns the number of keys that wait for a worker.
func (q *Queue) Len() int { return q.fair.count() }

// Stuck returns for how long all workers that a class may have, or all workers, have been
// busy without finishing a key; 0 while some are free.
func (q *Queue) Stuck() time.Duration { return q.fair.stuck() }

// End ends the queue: Run returns, and a queue that was not run has no goroutines left.
func (q *Queue) End() { q.items.ShutDown() }

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
	attempt, reason := q.options.Attempt(ctx)
	q.begin(key)
	after, err := handle(attempt, key)
	q.end(key, after, err, reason(err))
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
