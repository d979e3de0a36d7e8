package work_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// told describes unfinished keys with their ages.
func told(queue *work.Queue) (lines []string) {
	unfinished := queue.Unfinished()
	slices.SortFunc(unfinished, func(a, b work.Unfinished) int { return cmp.Compare(a.Key, b.Key) })
	for _, u := range unfinished {
		lines = append(lines, fmt.Sprintf("%s for %v, running %t, failed %t, %q", u.Key, time.Since(u.Since), u.Running, u.Failed, u.Reason))
	}
	return lines
}

func TestUnfinished_areWaitingRunningFailedAndPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		queue := work.New(work.Options{
			Name: "test", Workers: 1, Retry: work.Retry{Start: time.Hour, Max: time.Hour}, Registerer: registry,
			Attempt: func(ctx context.Context) (context.Context, func(error) string) {
				return ctx, func(err error) string {
					if err != nil {
						return "because " + err.Error()
					}
					return ""
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		calm, done := false, make(chan struct{})
		go func() {
			defer close(done)
			_ = queue.Run(ctx, func(ctx context.Context, key string) (time.Duration, error) {
				switch key {
				case "fails":
					if calm {
						return 0, nil
					}
					return 0, errors.New("no")
				case "pauses":
					return time.Hour, nil
				case "hangs":
					<-ctx.Done()
				}
				return 0, nil
			})
		}()
		for _, key := range []string{"done", "fails", "pauses"} {
			queue.Add(key)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		queue.Add("hangs")
		time.Sleep(time.Minute)
		queue.Add("waits")
		time.Sleep(time.Minute)
		want := []string{
			`fails for 3m0s, running false, failed true, "because no"`,
			`hangs for 2m0s, running true, failed false, ""`,
			`pauses for 3m0s, running false, failed false, ""`,
			`waits for 1m0s, running false, failed false, ""`,
		}
		if got := told(queue); !slices.Equal(got, want) {
			t.Errorf("unfinished are %q, want %q", got, want)
		}
		if got := oldest(t, registry); got != 60 {
			t.Errorf("the oldest key waits for %v s, want 60", got)
		}
		cancel()
		<-done
	})
}

// TestUnfinished_endsWithSuccess also checks that a failure keeps the first time.
func TestUnfinished_endsWithSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		queue := work.New(work.Options{Name: "test", Retry: work.Retry{Start: time.Minute, Max: time.Minute}, Registerer: registry})
		ctx, cancel := context.WithCancel(t.Context())
		tries, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			_ = queue.Run(ctx, func(context.Context, string) (time.Duration, error) {
				if tries++; tries < 3 {
					return 0, errors.New("no")
				}
				return 0, nil
			})
		}()
		queue.Add("a")
		time.Sleep(90 * time.Second)
		if got, want := told(queue), []string{`a for 1m30s, running false, failed true, ""`}; !slices.Equal(got, want) {
			t.Errorf("after two failures: %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		if got := told(queue); len(got) > 0 {
			t.Errorf("after success: %q", got)
		}
		if got := oldest(t, registry); got != 0 {
			t.Errorf("the oldest key waits for %v s, and there is none", got)
		}
		cancel()
		<-done
	})
}

// oldest reads holdfast_workqueue_oldest_seconds.
func oldest(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "holdfast_workqueue_oldest_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("holdfast_workqueue_oldest_seconds is not there")
	return 0
}
