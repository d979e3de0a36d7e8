package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// caller is one call of a random history.
type caller struct {
	key     string
	after   time.Duration // since the start
	timeout time.Duration // 0: waits for ever
}

func (c caller) String() string { return fmt.Sprintf("%s@%s(%s)", c.key, c.after, c.timeout) }

// Whatever comes when and leaves when: every caller gets the answer for its own
// key or its own context's error, in time; every call to the server has some
// keys, not too many, each once; and nothing runs afterwards.
func TestBatcher_model(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.IntRange(1, 7).Draw(r, "limit")
		takes := time.Duration(rapid.IntRange(0, 60).Draw(r, "takes")) * time.Millisecond
		join := rapid.Bool().Draw(r, "join")
		callers := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) caller {
			return caller{
				key:     rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "bad1", "bad2", "absent1", "absent2"}).Draw(r, "key"),
				after:   time.Duration(rapid.IntRange(0, 200).Draw(r, "after")) * time.Millisecond,
				timeout: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 7, 50}).Draw(r, "timeout")) * time.Millisecond,
			}
		}), 1, 40).Draw(r, "callers")
		var problems []string
		synctest.Test(t, func(*testing.T) {
			problems = play(callers, takes, concurrency.BatchOptions{Limit: limit, Join: join, Split: isBad})
		})
		if len(problems) > 0 {
			r.Fatalf("%s", strings.Join(problems, "\n"))
		}
	})
}

// play runs a history and returns what went wrong.
func play(callers []caller, takes time.Duration, o concurrency.BatchOptions) (problems []string) {
	var mu sync.Mutex
	problem := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	s := &server{takes: takes}
	b := concurrency.NewBatcher(s.fetch, o)
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(func() {
			time.Sleep(c.after)
			ctx, cancel := context.WithCancel(context.Background())
			if c.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.timeout)
			}
			defer cancel()
			began := time.Now()
			v, found, err := b.Get(ctx, c.key)
			judge(problem, c, time.Since(began), v, found, err)
		})
	}
	all.Wait()
	b.Close()
	for _, call := range s.calls {
		seen := map[string]bool{}
		for _, k := range call.keys {
			if seen[k] {
				problem("%s is twice in one call", k)
			}
			seen[k] = true
		}
		if len(call.keys) == 0 || len(call.keys) > o.Limit {
			problem("a call has %d keys, the limit is %d", len(call.keys), o.Limit)
		}
	}
	return problems
}

func judge(problem func(string, ...any), c caller, took time.Duration, v string, found bool, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		if c.timeout == 0 || took != c.timeout {
			problem("%v gave up after %s", c, took)
		}
	case strings.HasPrefix(c.key, "bad"):
		if !errors.Is(err, errBad) {
			problem("%v got %q, %v", c, v, err)
		}
	case err != nil:
		problem("%v failed: %v", c, err)
	case found == strings.HasPrefix(c.key, "absent"), found && v != "value of "+c.key:
		problem("%v got %q, found is %t", c, v, found)
	}
}
