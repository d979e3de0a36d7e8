package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// recorder is a controller of Namespaces that fails and pauses as a test says.
type recorder struct {
	mu    sync.Mutex
	calls map[string][]time.Time
	keys  chan string
	do    func(ctx context.Context, key string, call int) (time.Duration, error)
}

func (r *recorder) controller() Controller {
	return Controller{
		Name: "recorder",
		All: func(tx *store.Tx) ([]string, error) {
			var keys []string
			all, err := tx.Namespaces().All()
			for _, object := range all {
				keys = append(keys, object.Name)
			}
			return keys, err
		},
		Keys: func(c store.Change) []string { return []string{c.Key} },
		Do: func(ctx context.Context, key string) (time.Duration, error) {
			r.mu.Lock()
			r.calls[key] = append(r.calls[key], time.Now())
			call := len(r.calls[key])
			r.mu.Unlock()
			r.keys <- key
			return r.do(ctx, key, call)
		},
	}
}

func put(t *testing.T, s *store.Store, name, label string) {
	t.Helper()
	putAs(t, s, nil, name, label)
}

func putAs(t *testing.T, s *store.Store, writer *store.Writer, name, label string) {
	t.Helper()
	err := s.UpdateAs(writer, func(tx *store.Tx) error {
		return tx.Namespaces().Put(name, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": label}}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, r *recorder) (*store.Store, *Set) {
	t.Helper()
	opened, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, opened, "early", "1")
	r.calls, r.keys = map[string][]time.Time{}, make(chan string, 100)
	set := NewSet(opened, r.controller())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- set.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened, set
}

func (r *recorder) expect(t *testing.T, keys ...string) {
	t.Helper()
	var got []string
	for range keys {
		select {
		case key := <-r.keys:
			got = append(got, key)
		case <-time.After(time.Minute):
			t.Fatalf("processed %v; want %v", got, keys)
		}
	}
	slices.Sort(got)
	if slices.Sort(keys); !slices.Equal(got, keys) {
		t.Fatalf("processed %v; want %v", got, keys)
	}
}

func (r *recorder) quiet(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case key := <-r.keys:
		t.Fatalf("processed %s without a reason", key)
	case <-time.After(d):
	}
}

func TestSet_processesExistingKeysAndChanges(t *testing.T) {
	r := &recorder{do: func(context.Context, string, int) (time.Duration, error) { return 0, nil }}
	opened, _ := run(t, r)
	r.expect(t, "early")
	put(t, opened, "late", "1")
	r.expect(t, "late")
	put(t, opened, "late", "1") // no change
	r.quiet(t, 50*time.Millisecond)
	put(t, opened, "late", "2")
	r.expect(t, "late")
}

func TestSet_oneCallPerKeyAndAgainAfterAChange(t *testing.T) {
	release := make(chan struct{})
	r := &recorder{do: func(context.Context, string, int) (time.Duration, error) { <-release; return 0, nil }}
	opened, set := run(t, r)
	r.expect(t, "early")
	put(t, opened, "early", "2")
	put(t, opened, "early", "3")
	put(t, opened, "other", "1") // another key does not wait
	r.expect(t, "other")
	r.quiet(t, 50*time.Millisecond)
	if state := set.Queue("recorder").State("early"); !state.Running {
		t.Errorf("the state is %+v; want it running", state)
	}
	close(release)
	r.expect(t, "early") // once for both changes
	r.quiet(t, 50*time.Millisecond)
	if state := set.Queue("recorder").State("early"); state != (State{}) {
		t.Errorf("the state of a processed key is %+v", state)
	}
}

func TestSet_failuresWaitLongerAndLonger(t *testing.T) {
	r := &recorder{do: func(_ context.Context, _ string, call int) (time.Duration, error) {
		if call <= 2 {
			return 0, errors.New("broken")
		}
		return 0, nil
	}}
	run(t, r)
	r.expect(t, "early", "early", "early")
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range 2 {
		if gap := r.calls["early"][i+1].Sub(r.calls["early"][i]); gap < FirstPause<<i {
			t.Errorf("try %d came after %v", i+2, gap)
		}
	}
}

// The registration of a driver ends the pause of the objects that wait for it.
func TestSet_retryEndsThePause(t *testing.T) {
	r, _, set, letGo := hung(t)
	letGo()
	queue := set.Queue("recorder")
	for state := queue.State("early"); state.Running || state.LastError == nil; state = queue.State("early") {
		time.Sleep(time.Millisecond)
	}
	if state := queue.State("early"); state.Attempts != 21 || time.Until(state.Next) < FirstPause {
		t.Errorf("the state is %+v", state)
	}
	set.Retry()
	r.expectSoon(t, "early")
}

// A failing call that writes the object must not requeue it at once.
func TestSet_ownWritesAreNoReasonToHurry(t *testing.T) {
	r := &recorder{}
	var opened *store.Store
	ready := make(chan struct{})
	r.do = func(ctx context.Context, key string, call int) (time.Duration, error) {
		<-ready
		putAs(t, opened, store.WriterOf(ctx), key, string(rune('a'+call)))
		return 0, errors.New("no")
	}
	opened, _ = run(t, r)
	close(ready)
	r.expect(t, "early", "early", "early", "early")
	r.mu.Lock()
	defer r.mu.Unlock()
	if took := r.calls["early"][3].Sub(r.calls["early"][0]); took < (1+2+4)*FirstPause {
		t.Errorf("four tries within %v", took)
	}
}

func TestSet_requeuesAfterThePause(t *testing.T) {
	r := &recorder{do: func(_ context.Context, _ string, call int) (time.Duration, error) {
		if call == 1 {
			return time.Millisecond, nil
		}
		return 0, nil
	}}
	run(t, r)
	r.expect(t, "early", "early")
	r.quiet(t, 50*time.Millisecond)
}

func TestQueue_partitionsDoNotDelayEachOther(t *testing.T) {
	release := make(chan struct{})
	r := &recorder{do: func(_ context.Context, key string, _ int) (time.Duration, error) {
		if key[0] == 'h' {
			<-release
		}
		return 0, nil
	}}
	r.calls, r.keys = map[string][]time.Time{}, make(chan string, 1000)
	controller := r.controller()
	controller.Partition = func(key string) string { return key[:1] }
	q := newQueue(controller)
	q.start(t.Context())
	defer q.stop()
	defer close(release)
	for i := range 2 * parallel {
		q.Add("h" + string(rune('A'+i)))
	}
	for range parallel {
		<-r.keys
	}
	r.quiet(t, 20*time.Millisecond) // the partition is full
	q.Add("free")
	r.expect(t, "free")
}

func TestSet_catchesUpWhenItFellBehind(t *testing.T) {
	r := &recorder{do: func(context.Context, string, int) (time.Duration, error) { return 0, nil }}
	opened, _ := run(t, r)
	r.expect(t, "early")
	err := opened.Update(func(tx *store.Tx) error {
		for i := range 10000 {
			object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many", Generation: int64(i), Labels: map[string]string{"long": strings.Repeat("l", 1000)}}}
			if err := tx.Namespaces().Put("many", object); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := ""; key != "many"; {
		select {
		case key = <-r.keys:
		case <-time.After(time.Minute):
			t.Fatal("the change is not seen")
		}
	}
}

func TestSet_aFailureCanBeTriedAgainSoon(t *testing.T) {
	const limit = time.Millisecond
	r := &recorder{do: func(_ context.Context, _ string, call int) (time.Duration, error) {
		if call < 12 { // the ordinary pauses would add up to more than 15 min
			return 0, Within(errors.New("busy"), limit)
		}
		return 0, nil
	}}
	run(t, r)
	for range 12 {
		<-r.keys
	}
	if err := Within(nil, limit); err != nil {
		t.Errorf("no failure became %v", err)
	}
	busy := errors.New("busy")
	if err := Within(busy, limit); !errors.Is(err, busy) || err.Error() != "busy" {
		t.Errorf("the failure became %v", err)
	}
}
