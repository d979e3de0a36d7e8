package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers lookups after a while and remembers them.
type server struct {
	takes time.Duration

	mu    sync.Mutex
	calls []lookup
}

type lookup struct {
	at   time.Time
	keys []string
}

var errBad = errors.New("one of the keys is bad")

// fetch knows every key but those with the prefix absent; bad ones fail the call.
func (s *server) fetch(ctx context.Context, keys []string) (map[string]string, error) {
	s.mu.Lock()
	s.calls = append(s.calls, lookup{time.Now(), slices.Clone(keys)})
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := map[string]string{}
	for _, k := range keys {
		switch {
		case strings.HasPrefix(k, "bad"):
			return nil, errBad
		case !strings.HasPrefix(k, "absent"):
			out[k] = "value of " + k
		}
	}
	return out, nil
}

func (s *server) sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sizes []int
	for _, c := range s.calls {
		sizes = append(sizes, len(c.keys))
	}
	return sizes
}

func isBad(err error) bool { return errors.Is(err, errBad) }

// ask gets all keys at once and returns the errors by key.
func ask(t *testing.T, b *concurrency.Batcher[string, string], keys ...string) map[string]error {
	t.Helper()
	errs := map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, k := range keys {
		all.Go(func() {
			v, found, err := b.Get(t.Context(), k)
			mu.Lock()
			defer mu.Unlock()
			errs[k] = err
			if err != nil {
				return
			}
			if want := !strings.HasPrefix(k, "absent"); found != want {
				t.Errorf("%s: found is %t, want %t", k, found, want)
			} else if found && v != "value of "+k {
				t.Errorf("%s got %q", k, v)
			}
		})
	}
	all.Wait()
	return errs
}

func keys(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("k", i)
	}
	return out
}

// A lone call waits for nothing but its answer.
func TestGet_aLoneCallGoesOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		for range 3 {
			began := time.Now()
			ask(t, b, "k")
			if took := time.Since(began); took != s.takes {
				t.Errorf("a lone call took %s, the lookup itself %s", took, s.takes)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestGet_aBurstSharesOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		ask(t, b, keys(100)...) // nothing is known yet: the first may go alone
		time.Sleep(time.Second)
		began := time.Now()
		ask(t, b, keys(100)...)
		if took := time.Since(began); took > s.takes+10*time.Millisecond {
			t.Errorf("a burst took %s", took)
		}
		if got := s.sizes(); len(got) > 3 || got[len(got)-1] != 100 {
			t.Errorf("the calls had %v keys, want two for the first burst at most and one for the second", got)
		}
	})
}

func TestGet_theDelayEndsWithTheBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		ask(t, b, keys(100)...)
		var took []time.Duration
		for range 4 {
			time.Sleep(time.Second)
			began := time.Now()
			ask(t, b, "k")
			took = append(took, time.Since(began))
		}
		want := []time.Duration{55 * time.Millisecond, 55 * time.Millisecond, s.takes, s.takes}
		if !slices.Equal(took, want) {
			t.Errorf("lone calls after a burst took %v, want %v", took, want)
		}
	})
}

// EC2 takes 200 values per filter.
func TestGet_manyKeysAreAskedInChunksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{Limit: 200})
		defer b.Close()
		began := time.Now()
		ask(t, b, keys(901)...)
		if took := time.Since(began); took > s.takes+10*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if got := s.sizes(); len(got) > 6 || slices.Max(got) > 200 {
			t.Errorf("the calls had %v keys", got)
		}
	})
}

// With two calls under way, the rest gathers until one of them ends.
func TestGet_batchesGrowWithTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		var all sync.WaitGroup
		for _, k := range keys(200) {
			all.Go(func() {
				if _, _, err := b.Get(t.Context(), k); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		all.Wait()
		if n := len(s.sizes()); n > 2*1000/50+2 {
			t.Errorf("a second of keys made %d calls of 50 ms", n)
		}
	})
}

// One bad key fails alone.
func TestGet_aBadKeyFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{Split: isBad})
		defer b.Close()
		errs := ask(t, b, append(keys(19), "bad")...)
		for k, err := range errs {
			if (k == "bad") != errors.Is(err, errBad) {
				t.Errorf("%s: %v", k, err)
			}
		}
	})
}

// An absent key does not affect other keys.
func TestGet_anAbsentKeyIsNotFoundForItsCallerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		for k, err := range ask(t, b, append(keys(19), "absent")...) {
			if err != nil {
				t.Errorf("%s: %v", k, err)
			}
		}
	})
}

// A caller leaves on its own, and the call continues for the others.
func TestGet_aCallerLeavesOnItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		began := time.Now()
		all.Go(func() { ask(t, b, "k") })
		synctest.Wait()
		all.Go(func() { ask(t, b, "k1", "k2") })
		_, _, err := b.Get(short, "k1")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		all.Wait()
	})
}

// A call without callers ends, and a key without callers is not sent.
func TestGet_aKeyWithoutCallersIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: time.Hour}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		var all sync.WaitGroup
		for _, k := range keys(3) {
			all.Go(func() { _, _, _ = b.Get(ctx, k) })
			synctest.Wait()
		}
		all.Wait()
		synctest.Wait()
		if got := s.sizes(); !slices.Equal(got, []int{1}) {
			t.Errorf("the calls had %v keys, want one call of the first key", got)
		}
		if time.Since(began) != time.Millisecond {
			t.Error("the call was waited for")
		}
	})
}

func TestGet_aKeyIsAskedOncePerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		defer b.Close()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { ask(t, b, "k") })
			synctest.Wait()
		}
		all.Wait()
		if got := s.sizes(); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("the calls had %v keys: a call that began before its caller asked may be too old", got)
		}
	})
}

// What does not change is asked once for all concurrent callers.
func TestGet_joinSharesARunningCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 50 * time.Millisecond}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{Join: true})
		defer b.Close()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { ask(t, b, "k") })
		}
		all.Wait()
		if got := s.sizes(); !slices.Equal(got, []int{1}) {
			t.Errorf("the calls had %v keys", got)
		}
	})
}

func TestClose_endsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: time.Hour}
		b := concurrency.NewBatcher(s.fetch, concurrency.BatchOptions{})
		var all sync.WaitGroup
		for _, k := range keys(10) {
			all.Go(func() {
				if _, _, err := b.Get(t.Context(), k); !errors.Is(err, concurrency.ErrClosed) {
					t.Errorf("%s: %v, want ErrClosed", k, err)
				}
			})
		}
		time.Sleep(time.Second)
		b.Close()
		all.Wait()
		if _, _, err := b.Get(t.Context(), "k"); !errors.Is(err, concurrency.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
