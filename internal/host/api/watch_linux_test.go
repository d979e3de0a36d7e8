package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// model is a client's state from a list and a watch.
type model struct {
	mu       sync.Mutex
	versions map[string]string
	version  uint64
}

func (m *model) list(objects []store.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, object := range objects {
		m.versions[store.KeyOf(object)] = object.GetResourceVersion()
	}
}

func (m *model) see(t *testing.T, event WatchEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := store.KeyOf(event.Object)
	version, err := strconv.ParseUint(event.Object.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("%s has version %q", key, event.Object.GetResourceVersion())
	}
	if version <= m.version && event.Type != watch.Added {
		t.Errorf("after version %d comes %d", m.version, version)
	}
	m.version = max(version, m.version)
	if event.Type == watch.Deleted {
		delete(m.versions, key)
		return
	}
	m.versions[key] = event.Object.GetResourceVersion()
}

func (m *model) state() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.versions)
}

// A client that lists and watches has the state of the store, while others write, with
// and without a selector, and from any version.
func TestWatch_withItsListIsTheStore(t *testing.T) {
	f := serve(t)
	claims := kindNamed("persistentvolumeclaims")
	ctx, cancel := context.WithCancel(t.Context())
	var writers, watchers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() { scribble(t, f, w) })
	}
	selections := []ListOptions{{}, {LabelSelector: "color=red"}, {LabelSelector: "color!=red"}, {Namespace: "default", FieldSelector: "metadata.name=claim3"}}
	models := make([]*model, 2*len(selections))
	for i := range models {
		models[i] = &model{versions: map[string]string{}}
		chosen := selections[i/2]
		watchers.Go(func() {
			if i%2 == 0 { // list, then watch
				listed, err := f.List(ctx, claims, chosen)
				if err != nil {
					t.Error(err)
					return
				}
				models[i].list(listed.Items)
				chosen.ResourceVersion = listed.ResourceVersion
			}
			err := f.Watch(ctx, claims, chosen, func(event WatchEvent) error {
				models[i].see(t, event)
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	deadline := time.Now().Add(time.Minute)
	for i, known := range models {
		listed, err := f.List(t.Context(), claims, selections[i/2])
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, object := range listed.Items {
			want[store.KeyOf(object)] = object.GetResourceVersion()
		}
		for !maps.Equal(known.state(), want) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if got := known.state(); !maps.Equal(got, want) {
			t.Errorf("watcher %d (%+v) knows %v, the store has %v", i, selections[i/2], got, want)
		}
	}
	cancel()
	watchers.Wait()
}

// scribble makes, changes and deletes claims; their color comes and goes.
func scribble(t *testing.T, f *fixture, seed int) {
	random := rand.New(rand.NewPCG(1, uint64(seed)))
	colors := []map[string]string{nil, {"color": "red"}, {"color": "blue"}}
	for step := range 150 {
		claim := claimNamed(fmt.Sprint("claim", random.IntN(8)), colors[random.IntN(3)])
		claim.Annotations = map[string]string{"step": fmt.Sprint(seed, step)}
		err := f.store.Update(func(tx *store.Tx) error {
			if random.IntN(3) == 0 {
				return tx.Claims().Delete(store.KeyOf(claim))
			}
			return tx.Claims().Put(store.KeyOf(claim), claim)
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestWatch_ofAnOldVersionIsGone(t *testing.T) {
	f := serve(t)
	class := classNamed("fast")
	for n := range 100 {
		class.Parameters = map[string]string{"n": fmt.Sprintf("%0100000d", n)} // more than is kept
		f.put(t, class)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := f.Watch(ctx, kindNamed("storageclasses"), ListOptions{ResourceVersion: "1"}, func(WatchEvent) error { return nil })
	if !errors.Is(err, store.ErrExpired) {
		t.Errorf("the watch says %v", err)
	}
	if code, body := f.ask(t, "GET", "/apis/storage.k8s.io/v1/storageclasses?watch=1&resourceVersion=1", ""); code != http.StatusGone {
		t.Errorf("the answer is %d %s", code, body)
	}
}

func TestWatch_ofEventsFollowsTheJournal(t *testing.T) {
	f := serve(t)
	about := journal.Ref{Kind: "Pod", Key: "default/web"}
	f.journal.Record(journal.Notice{About: about, Warning: true, Reason: "FailedMount", Message: "no"})
	var seen []string
	stop := errors.New("enough")
	err := f.Watch(t.Context(), EventKind(), ListOptions{Namespace: "default"}, func(event WatchEvent) error {
		seen = append(seen, string(event.Type))
		if len(seen) == 3 {
			return stop
		}
		f.journal.Record(journal.Notice{About: about, Warning: true, Reason: "FailedMount", Message: "no"})
		f.journal.Step(journal.StepEntry{Step: "stage", About: []journal.Ref{about}})
		return nil
	})
	if !errors.Is(err, stop) || fmt.Sprint(seen) != "[ADDED MODIFIED MODIFIED]" {
		t.Errorf("the watch says %v (%v)", seen, err)
	}
}

// A hundred watchers come, and go without a word.
func TestWatch_endsWithItsClient(t *testing.T) {
	f := serve(t)
	for range 100 {
		answer, err := f.send(t.Context(), request{method: http.MethodGet, path: "/api/v1/pods", query: map[string][]string{"watch": {"1"}}})
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	// The server's end, and goleak, are the test.
}

func TestWatch_endsWithTheHost(t *testing.T) {
	f := serve(t)
	ended := make(chan error)
	what := request{method: http.MethodGet, path: "/apis/holdfast.dev/v1/journal", query: map[string][]string{"watch": {"1"}}}
	answer, err := f.send(t.Context(), what) //nolint:bodyclose // it is closed below
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	go func() {
		_, err := io.ReadAll(answer.Body)
		ended <- err
	}()
	f.stop()
	if err := <-ended; err != nil { // a watch that did not end in time ends with an error
		t.Errorf("the watch ended with %v", err)
	}
}

// A client that does not read is given up; others are served meanwhile.
func TestWatch_ofASlowClientDelaysNoOther(t *testing.T) {
	f := serve(t)
	answer, err := f.send(t.Context(), request{method: http.MethodGet, path: "/apis/storage.k8s.io/v1/storageclasses", query: map[string][]string{"watch": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	class := classNamed("fast")
	for n := range 50 {
		class.Parameters = map[string]string{"n": fmt.Sprintf("%0100000d", n)}
		f.put(t, class)
	}
	begin := time.Now()
	// Not by the time after which the slow one is given up.
	if _, err := f.Version(t.Context()); err != nil || time.Since(begin) > writeLimit-time.Second {
		t.Errorf("another client waits %v (%v)", time.Since(begin), err)
	}
}
