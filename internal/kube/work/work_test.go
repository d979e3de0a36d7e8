package work_test

import (
	"context"
	"errors"
	"fmt"
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
