package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// grouped is a group of controllers of Namespaces. A call of one waits until the test
// ends it.
type grouped struct {
	mu      sync.Mutex
	running map[string]string // the controller that runs, by key
	overlap error
	order   []string // "controller key", as the calls began
	fail    map[string]int
	ends    chan struct{}
}

func newGroup() *grouped {
	return &grouped{running: map[string]string{}, fail: map[string]int{}, ends: make(chan struct{})}
}

func (g *grouped) controller(name string) Controller {
	one := (&recorder{}).controller()
	one.Name, one.Group = name, "namespaces"
	one.Do = func(ctx context.Context, key string) (time.Duration, error) {
		if err := g.begin(name, key); err != nil {
			return 0, err
		}
		select {
		case <-g.ends:
		case <-ctx.Done():
		}
		return 0, g.end(name, key)
	}
	return one
}

func (g *grouped) begin(name, key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order = append(g.order, name+" "+key)
	if other, busy := g.running[key]; busy {
		g.overlap = fmt.Errorf("%s runs %s while %s does", name, key, other)
		return g.overlap
	}
	g.running[key] = name
	return nil
}

func (g *grouped) end(name, key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, key)
	if g.fail[name+" "+key]--; g.fail[name+" "+key] >= 0 {
		return errors.New("asked to fail")
	}
	return nil
}

// calls returns how often a controller was called for a key.
func (g *grouped) calls(call string) (count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.order {
		if one == call {
			count++
		}
	}
	return count
}

// runGroup runs a group over a store with these Namespaces.
func runGroup(t *testing.T, g *grouped, names, keys []string) (*store.Store, *Set) {
	t.Helper()
	opened, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		put(t, opened, key, "1")
	}
	controllers := make([]Controller, 0, len(names))
	for _, name := range names {
		controllers = append(controllers, g.controller(name))
	}
	set := NewSet(opened, controllers...)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- set.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, opened.Close()); err != nil {
			t.Error(err)
		}
	})
	return opened, set
}

// What is due in several controllers of a group runs in their order.
func TestGroup_runsAKeyInTheOrderOfTheControllers(t *testing.T) {
	names := []string{"first", "second", "third"}
	g := newGroup()
	opened, set := runGroup(t, g, names, []string{"k"})
	for range names {
		g.ends <- struct{}{}
	}
	put(t, opened, "k", "2")
	for range names {
		g.ends <- struct{}{}
	}
	if err := set.Await(t.Context(), set.Idle); err != nil {
		t.Fatal(err)
	}
	want := []string{"first k", "second k", "third k", "first k", "second k", "third k"}
	if !slices.Equal(g.order, want) || g.overlap != nil {
		t.Errorf("called %v, %v", g.order, g.overlap)
	}
}

// An earlier controller also has precedence over one that waits for a third.
func TestGroup_anEarlierControllerGoesFirstWhenALaterOneEnds(t *testing.T) {
	g := newGroup()
	_, set := runGroup(t, g, []string{"first", "second", "third"}, []string{"k"})
	g.ends <- struct{}{}
	g.ends <- struct{}{}
	for g.calls("third k") == 0 {
		time.Sleep(time.Millisecond)
	}
	set.Queue("second").Add("k")
	set.Queue("first").Add("k")
	for range 3 {
		g.ends <- struct{}{}
	}
	if err := set.Await(t.Context(), set.Idle); err != nil {
		t.Fatal(err)
	}
	if want := []string{"third k", "first k", "second k"}; !slices.Equal(g.order[2:], want) || g.overlap != nil {
		t.Errorf("called %v, %v", g.order, g.overlap)
	}
}

// A change by one controller of a group does not shorten the back-off of another.
func TestGroup_itsWritesDoNotShortenTheBackOff(t *testing.T) {
	q, other := newQueue(Controller{Name: "a"}), newQueue(Controller{Name: "b"})
	q.group = []*Queue{q, other}
	other.mu, other.group = q.mu, q.group
	q.Add("k")
	other.Add("k")
	if q.items["k"].writer != other.items["k"].writer {
		t.Error("the controllers of a group have different writers for a key")
	}
	q.Add("other")
	if q.items["k"].writer == q.items["other"].writer {
		t.Error("two keys have one writer")
	}
}

// A key runs in one controller of a group at a time, and each controller runs after
// the last change: whatever changes, fails and is retried.
func TestGroup_model(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names, keys := []string{"a", "b", "c"}, []string{"x", "y"}
		g := newGroup()
		opened, err := store.Open(t.TempDir())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = opened.Close() }()
		controllers := []Controller{}
		for _, name := range names {
			controllers = append(controllers, g.controller(name))
		}
		set := NewSet(opened, controllers...)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- set.Run(ctx) }()
		defer func() {
			stop()
			<-ended
		}()
		one := func(from []string) string { return rapid.SampledFrom(from).Draw(rt, "one") }
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				put(t, opened, one(keys), fmt.Sprint(step))
			case 1:
				set.Queue(one(names)).Add(one(keys))
			case 2:
				call := one(names) + " " + one(keys)
				g.mu.Lock()
				g.fail[call]++
				g.mu.Unlock()
			case 3:
				set.Retry()
			case 4:
				select {
				case g.ends <- struct{}{}:
				default:
				}
			}
		}
		for _, key := range keys {
			put(t, opened, key, "last")
		}
		close(g.ends)
		if err := set.Await(t.Context(), set.Idle); err != nil {
			rt.Fatal(err)
		}
		g.mu.Lock()
		overlap := g.overlap
		g.mu.Unlock()
		if overlap != nil {
			rt.Fatal(overlap)
		}
		for _, name := range names {
			for _, key := range keys {
				if state := set.Queue(name).State(key); state.Running || state.LastError == nil && state != (State{}) {
					rt.Errorf("%s of %s is %+v", name, key, state)
				}
				if g.calls(name+" "+key) == 0 {
					rt.Errorf("%s was not called for %s", name, key)
				}
			}
		}
	})
}
