package live

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// get asks for a page.
func get(h *Health, path string) (code int, body string) {
	answer := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	h.Handlers(nil)[path].ServeHTTP(answer, request)
	return answer.Code, answer.Body.String()
}

func expect(t *testing.T, h *Health, path string, code int, words ...string) {
	t.Helper()
	got, body := get(h, path)
	if got != code {
		t.Errorf("%s answers %d, want %d: %q", path, got, code, body)
	}
	for _, word := range words {
		if !strings.Contains(body, word) {
			t.Errorf("%s says %q, which lacks %q", path, body, word)
		}
	}
}

func fact(name, words string, err error) Fact {
	return Fact{Name: name, Describe: func() (string, error) { return words, err }}
}

func TestReady_saysInWordsWhatIsMissing(t *testing.T) {
	h := New(Options{
		Probe: func(context.Context) error { return nil },
		Facts: []Fact{fact("caches", "filled", nil), fact("lease", "standby for 3s: lease x is held by b", nil)},
	})
	expect(t, h, PathReady, http.StatusOK, "ok\n", "[+] driver: ready", "[+] caches: filled", "[+] lease: standby")

	h = New(Options{
		Probe: func(context.Context) error { return errors.New("the pool\nis away") },
		Facts: []Fact{fact("registration", "", errors.New("refused by the kubelet: no such node")), fact("caches", "filled", nil)},
	})
	expect(t, h, PathReady, http.StatusServiceUnavailable, "[-] driver: the pool is away\n", "[-] registration: refused by the kubelet", "[+] caches")
}

func TestLive_doesNotDependOnTheDriver(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"a driver that fails": func(context.Context) error { return errors.New("the backend is down") },
		"a driver that hangs": func(context.Context) error { select {} },
		"no driver":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			h := New(Options{Probe: probe, Facts: []Fact{fact("caches", "", errors.New("not filled"))}})
			expect(t, h, PathLive, http.StatusOK, "ok\n", "self-test")
		})
	}
}

func TestLive_failsWhenAVitalDoes(t *testing.T) {
	broken := errors.New("its lease is gone and it works on")
	h := New(Options{Vitals: []Vital{{"one", func() error { return nil }}, {"lease", func() error { return broken }}}})
	expect(t, h, PathLive, http.StatusInternalServerError, "lease: its lease is gone")
	if code, _ := get(h, PathReady); code != http.StatusOK {
		t.Errorf("/readyz answers %d, and no fact fails", code)
	}
}

func TestLive_failsWhenTheSelfTestIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := make(chan struct{}, 1) // a mutex whose waiters the test's clock understands
		h := New(Options{Vitals: []Vital{{"queue claims", func() error {
			lock <- struct{}{}
			<-lock
			return nil
		}}}})
		expect(t, h, PathLive, http.StatusOK, "self-test 0s ago")
		time.Sleep(time.Second)
		lock <- struct{}{} // a bug: the lock is never released
		expect(t, h, PathLive, http.StatusOK, "waited 500ms for: queue claims")
		time.Sleep(stuckAfter)
		expect(t, h, PathLive, http.StatusInternalServerError, "queue claims")
		<-lock
		synctest.Wait()
		expect(t, h, PathLive, http.StatusOK, "self-test")
	})
}

func TestDriver_answersAsLivenessprobeDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		h := New(Options{Probe: func(context.Context) error {
			if fail.Load() {
				return errors.New("driver x: still starting")
			}
			return nil
		}})
		expect(t, h, PathDriver, http.StatusOK, "ok\n")
		fail.Store(true)
		time.Sleep(freshProbe)
		expect(t, h, PathDriver, http.StatusInternalServerError, "still starting")
	})
}

func TestDriver_isAskedOnceAtATimeAndNotMoreOftenWhenItHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, most, asked atomic.Int32
		stop := make(chan struct{})
		h := New(Options{Probe: func(ctx context.Context) error {
			asked.Add(1)
			most.Store(max(most.Load(), inFlight.Add(1)))
			defer inFlight.Add(-1)
			select {
			case <-stop: // the driver ignores the cancellation
				return ctx.Err()
			case <-time.After(20 * time.Second):
				return ctx.Err()
			}
		}})
		var pages sync.WaitGroup
		for range 200 { // every 5 s, on three pages at once
			for range 3 {
				pages.Go(func() {
					if _, err := h.Driver(context.Background()); err == nil {
						t.Error("a driver that hangs is well")
					}
				})
			}
			time.Sleep(5 * time.Second)
		}
		pages.Wait()
		if most.Load() != 1 {
			t.Errorf("%d questions were in flight at once", most.Load())
		}
		// 1000 s, each question hangs for 20 s, and the pauses grow to a minute.
		if n := asked.Load(); n > 20 {
			t.Errorf("a driver that hangs was asked %d times in 1000 s", n)
		}
		close(stop)
	})
}

func TestDriver_doesNotWaitLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		h := New(Options{Probe: func(context.Context) error { <-stop; return nil }, ProbeTimeout: 3 * time.Second})
		began := time.Now()
		expect(t, h, PathDriver, http.StatusInternalServerError, "has not answered Probe for 3s")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the page took %v", took)
		}
		close(stop)
		synctest.Wait()
		expect(t, h, PathDriver, http.StatusOK, "ready")
	})
}

func TestHandlers_serveTheCheckOfTheLease(t *testing.T) {
	for err, want := range map[error]int{nil: http.StatusOK, errors.New("late"): http.StatusInternalServerError} {
		answer := httptest.NewRecorder()
		handler := New(Options{}).Handlers(func() error { return err })[PathLeaderElection]
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, PathLeaderElection, nil))
		if answer.Code != want {
			t.Errorf("with %v it answers %d, want %d", err, answer.Code, want)
		}
	}
}

type stuck time.Duration

func (s stuck) Stuck() (string, time.Duration) { return "volumes", time.Duration(s) }

func TestMoving_failsBeyondItsLimit(t *testing.T) {
	for since, fails := range map[time.Duration]bool{0: false, time.Minute: false, time.Hour: true} {
		if err := Moving(stuck(since), 10*time.Minute).Test(); (err != nil) != fails {
			t.Errorf("with all workers busy for %v it says %v", since, err)
		}
	}
}
