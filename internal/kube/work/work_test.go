package work_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

func TestQueue_backsOffAfterFailuresOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := work.New(work.Options{Name: "test", Retry: work.Retry{Start: time.Second, Max: 4 * time.Second}})
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Duration
		queue.Add("a")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = queue.Run(ctx, func(context.Context, string) (time.Duration, error) {
				at = append(at, time.Since(start))
				switch len(at) {
				case 1, 2, 3, 4:
					return 0, errors.New("no")
				case 5, 6:
					return 10 * time.Second, nil
				}
				cancel()
				return 0, nil
			})
		}()
		<-ended
		want := []time.Duration{0, 1, 3, 7, 11, 21, 31}
		for i, w := range want {
			if got := at[i].Round(time.Second); got != w*time.Second {
				t.Errorf("work %d began after %v, not %v", i, got, w*time.Second)
			}
		}
	})
}

func TestQueue_hurriesKeysWhoseCauseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := work.New(work.Options{Name: "test", Retry: work.Retry{Start: time.Hour, Max: 4 * time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		away, refused := errors.New("the driver is away"), errors.New("refused")
		var mu sync.Mutex
		back, times := false, map[string]int{}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = queue.Run(ctx, func(_ context.Context, key string) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				times[key]++
				switch {
				case key == "refused":
					return 0, refused
				case key == "away" && !back:
					return 0, fmt.Errorf("create a volume: %w", away)
				}
				return 0, nil
			})
		}()
		for _, key := range []string{"refused", "away", "fine"} {
			queue.Add(key)
		}
		synctest.Wait()
		mu.Lock()
		back = true
		mu.Unlock()
		over := func(err error) bool { return errors.Is(err, away) }
		queue.Hurry(over)
		synctest.Wait()
		queue.Hurry(over) // nothing waits for it any more
		synctest.Wait()
		cancel()
		<-ended
		if times["refused"] != 1 || times["away"] != 2 || times["fine"] != 1 {
			t.Errorf("the keys were worked on %v times, want what failed of the absence twice, and the others once", times)
		}
	})
}

func TestQueue_runsManyKeysAtOnceButEachKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := work.New(work.Options{Name: "test", Workers: 2})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running, most atomic.Int32
		for _, key := range []string{"a", "b", "c", "a", "b"} {
			queue.Add(key)
		}
		var done atomic.Int32
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = queue.Run(ctx, func(_ context.Context, key string) (time.Duration, error) {
				most.Store(max(most.Load(), running.Add(1)))
				if key == "a" {
					queue.Add("a") // processed after this one, never concurrently
				}
				time.Sleep(time.Second)
				running.Add(-1)
				if done.Add(1) == 4 {
					cancel()
				}
				return 0, nil
			})
		}()
		<-ended
		if most.Load() != 2 {
			t.Errorf("%d at once, not 2", most.Load())
		}
	})
}

func TestQueue_waitsForKeysInProgressAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := work.New(work.Options{Name: "test"})
		ctx, cancel := context.WithCancel(t.Context())
		queue.Add("a")
		finished := false
		time.AfterFunc(time.Second, cancel)
		err := queue.Run(ctx, func(context.Context, string) (time.Duration, error) {
			time.Sleep(3 * time.Second)
			finished = true
			return 0, nil
		})
		if err != nil || !finished {
			t.Errorf("Run returned %v with its work unfinished (%t)", err, finished)
		}
	})
}

func TestQueue_isStuckWhenAllWorkersAreBusyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := work.New(work.Options{Name: "test", Workers: 2})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = queue.Run(ctx, func(ctx context.Context, key string) (time.Duration, error) {
				if key == "short" {
					return 0, nil
				}
				<-ctx.Done()
				return 0, nil
			})
		}()
		queue.Add("long 1")
		time.Sleep(time.Hour)
		if stuck := queue.Stuck(); stuck != 0 {
			t.Errorf("with a free worker the queue is stuck for %v", stuck)
		}
		queue.Add("short")
		queue.Add("long 2")
		time.Sleep(time.Hour)
		if stuck := queue.Stuck(); stuck != time.Hour {
			t.Errorf("without a free worker it is stuck for %v, want 1h", stuck)
		}
		cancel()
		<-done
		if stuck := queue.Stuck(); stuck != 0 {
			t.Errorf("at the end it is stuck for %v", stuck)
		}
	})
}

func TestQueue_queuesOfAProcessShareTheirMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, name := range []string{"one", "two"} {
		work.New(work.Options{Name: name, Registerer: registry}).Add("a")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "workqueue_adds_total" {
			if len(family.GetMetric()) != 2 {
				t.Errorf("%d series, not 2", len(family.GetMetric()))
			}
			return
		}
	}
	t.Error("workqueue_adds_total is not there")
}

// hanging is a queue with the default number of workers, whose keys "hangs/…" end after a
// minute as calls do that exceed their timeout; all others end at once.
func hanging(t *testing.T) (queue *work.Queue, began func(key string) time.Time, stop func()) {
	queue = work.New(work.Options{Name: "test", Flow: func(key string) work.Flow {
		class, _, _ := strings.Cut(key, "/")
		return work.Flow{Class: class}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	times := map[string]time.Time{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = queue.Run(ctx, func(ctx context.Context, key string) (time.Duration, error) {
			mu.Lock()
			times[key] = time.Now()
			mu.Unlock()
			if !strings.HasPrefix(key, "hangs") {
				return 0, nil
			}
			work.Sleep(ctx, time.Minute)
			return 0, context.DeadlineExceeded
		})
	}()
	began = func(key string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return times[key]
	}
	return queue, began, func() { cancel(); <-ended }
}

// The keys of the class fail and are retried for hours of the bubble's time.
func TestQueue_aClassThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, began, stop := hanging(t)
		defer stop()
		for i := range 10_000 {
			queue.Add(fmt.Sprint("hangs/", i))
		}
		for i := range 1000 {
			time.Sleep(7 * time.Second)
			key := fmt.Sprint("works/", i)
			added := time.Now()
			queue.Add(key)
			synctest.Wait()
			if delay := began(key).Sub(added); delay < 0 || delay > 2*time.Second {
				t.Fatalf("key %d of the other class began after %v, with %d keys waiting", i, delay, queue.Len())
			}
		}
		if queue.Len() == 0 {
			t.Error("no key of the class that hangs waits: the test does not fill the workers")
		}
	})
}

func TestQueue_severalClassesThatHangDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, began, stop := hanging(t)
		defer stop()
		for class := range 6 {
			for i := range 2000 {
				queue.Add(fmt.Sprint("hangs-", class, "/", i))
			}
		}
		for i := range 1000 {
			time.Sleep(7 * time.Second)
			key, added := fmt.Sprint("works/", i), time.Now()
			queue.Add(key)
			synctest.Wait()
			if delay := began(key).Sub(added); delay < 0 || delay > 2*time.Second {
				t.Fatalf("key %d of the other class began after %v", i, delay)
			}
		}
	})
}

func TestQueue_isStuckWhenAClassIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := work.New(work.Options{Name: "test", Workers: 2, Flow: func(key string) work.Flow {
			return work.Flow{Class: strings.TrimRight(key, "0123456789")}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = queue.Run(ctx, func(ctx context.Context, key string) (time.Duration, error) {
				if strings.HasPrefix(key, "hangs") {
					<-ctx.Done()
				}
				return 0, nil
			})
		}()
		queue.Add("hangs1")
		queue.Add("hangs2")
		for i := range 60 {
			time.Sleep(time.Minute)
			queue.Add(fmt.Sprint("works", i))
		}
		synctest.Wait()
		if stuck := queue.Stuck(); stuck != time.Hour {
			t.Errorf("while the other class works, it is stuck for %v, want 1h", stuck)
		}
		cancel()
		<-done
	})
}
