package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Half of the callers fail after they wrote, over what others wrote before:
// nothing of theirs may stay, and everything of the others.
func TestUpdate_aFailureTakesNothingElseAway(t *testing.T) {
	s := open(t, t.TempDir())
	broken := errors.New("broken")
	namespace := func(name, label string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"by": label}}}
	}
	watch := s.Watch(0)
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			name := fmt.Sprintf("n%d", i/2)
			err := s.Update(func(tx *Tx) error {
				if i%2 == 0 {
					return tx.Namespaces().Put(name, namespace(name, "good"))
				}
				if err := errors.Join(tx.Namespaces().Put(name, namespace(name, "bad")), tx.Namespaces().Delete("n0"),
					tx.Namespaces().Put("new-"+name, namespace("new-"+name, "bad")), tx.Uses().Put("u", &VolumeUse{Name: "u"})); err != nil {
					return err
				}
				return broken
			})
			if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, broken) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	group.Wait()
	err := s.View(func(tx *Tx) error {
		all, err := tx.Namespaces().All()
		if len(all) != 100 {
			t.Errorf("%d objects; want 100", len(all))
		}
		for _, object := range all {
			if object.Labels["by"] != "good" {
				t.Errorf("%s is by %s", object.Name, object.Labels["by"])
			}
		}
		if use, _ := tx.Uses().Get("u"); use != nil {
			t.Error("a record of a change that failed is there")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := watch.Next(t.Context())
	if err != nil || len(changes) != 100 {
		t.Errorf("%d changes, %v; want 100", len(changes), err)
	}
}

// A watcher that fell behind gets an error, and the history stays bounded in bytes.
func TestWatch_keepsSoMuchAndNoMore(t *testing.T) {
	s := open(t, t.TempDir())
	behind := s.Watch(0)
	put := func(name string, bytes int) {
		t.Helper()
		err := s.Update(func(tx *Tx) error {
			return tx.Namespaces().Put(name, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": string(make([]byte, bytes))}}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("huge", 3*historyBytes)
	if changes, err := behind.Next(t.Context()); err != nil || len(changes) != 1 {
		t.Fatalf("%d changes, %v; want the huge one", len(changes), err)
	}
	for i := range 100 {
		put(fmt.Sprintf("n%d", i), historyBytes/10)
	}
	if s.history.bytes > 2*historyBytes {
		t.Errorf("%d bytes are kept", s.history.bytes)
	}
	if _, err := behind.Next(t.Context()); !errors.Is(err, ErrExpired) {
		t.Errorf("got %v; want that the version is too old", err)
	}
}

// A server recovers the panics of its handlers: one caller's must not have the
// others believe that their changes are on disk.
func TestUpdate_aPanicFailsTheSharedCommit(t *testing.T) {
	s := open(t, t.TempDir())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	started, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var group sync.WaitGroup
	group.Go(func() { // blocks the commits until the next two have arrived
		if err := s.Update(func(*Tx) error { close(started); <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-started
	group.Go(func() {
		defer func() { _ = recover() }()
		_ = s.Update(func(*Tx) error { panic("broken") })
	})
	s.awaitArrivals(t, 1)
	group.Go(func() {
		defer func() { // the panic may come on either goroutine
			if recover() != nil {
				ended <- errOtherPanicked
			}
		}()
		ended <- s.Update(func(tx *Tx) error { return tx.Namespaces().Put("n", namespace) })
	})
	s.awaitArrivals(t, 2)
	close(release)
	group.Wait()
	err := <-ended
	var there *corev1.Namespace
	if failed := s.View(func(tx *Tx) (failed error) { there, failed = tx.Namespaces().Get("n"); return failed }); failed != nil {
		t.Fatal(failed)
	}
	if err == nil && there == nil {
		t.Error("it was reported as written, and is not there")
	}
}

func (s *Store) awaitArrivals(t *testing.T, count int) {
	t.Helper()
	for range 60_000 {
		s.arrivals.Lock()
		arrived := len(s.arrived)
		s.arrivals.Unlock()
		if arrived == count {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d changes did not arrive", count)
}
