package work

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// queued drives a fair queue as Queue does, without goroutines.
type queued struct {
	*fair
	flows   map[string]Flow
	waiting map[string]bool
	working map[string]bool
}

func newQueued(workers int) *queued {
	q := &queued{flows: map[string]Flow{}, waiting: map[string]bool{}, working: map[string]bool{}}
	q.fair = newFair(workers, func(key string) Flow { return q.flows[key] })
	return q
}

func (q *queued) add(key string, flow Flow) {
	q.flows[key] = flow
	q.waiting[key] = true
	q.Push(key)
}

// begin lets as many keys begin as may, and returns them.
func (q *queued) begin() (begun []string) {
	for q.choose() {
		key := q.Pop()
		delete(q.waiting, key)
		q.working[key] = true
		begun = append(begun, key)
	}
	return begun
}

func (q *queued) end(key string) {
	delete(q.working, key)
	q.finished(key)
}

// held counts the keys at work of which the condition is true.
func (q *queued) held(is func(Flow) bool) (n int) {
	for key := range q.working {
		if is(q.flows[key]) {
			n++
		}
	}
	return n
}

func TestFair_aClassThatHangsLeavesHalfOfTheWorkers(t *testing.T) {
	q := newQueued(100)
	for i, want := range []int{100, 50, 25, 13, 6, 3, 2, 1} {
		for key := range 300 {
			q.add(fmt.Sprint(i, "/", key), Flow{Class: fmt.Sprint("hangs-", i)})
		}
		if got := len(q.begin()); got != want {
			t.Errorf("class %d that hangs has %d workers, not %d", i, got, want)
		}
	}
}

func TestFair_aCallThatHangsLeavesWorkersToOtherCallsOfTheClass(t *testing.T) {
	q := newQueued(4)
	for i := range 20 {
		q.add(fmt.Sprint("delete-", i), Flow{Call: "Delete", Class: "c"})
	}
	q.begin()
	q.add("create", Flow{Call: "Create", Class: "c"})
	if begun := q.begin(); !slices.Equal(begun, []string{"create"}) {
		t.Errorf("%q began, not the creation", begun)
	}
}

func TestFair_aNodeThatHangsLeavesWorkersToOtherNodesOfTheClass(t *testing.T) {
	q := newQueued(8)
	for i := range 20 {
		q.add(fmt.Sprint("lost-", i), Flow{Class: "c", Node: "lost"})
	}
	if begun := q.begin(); len(begun) != 4 {
		t.Errorf("the lost node has %d of 8 workers, not half of them", len(begun))
	}
	q.add("ready", Flow{Class: "c", Node: "ready"})
	if begun := q.begin(); !slices.Equal(begun, []string{"ready"}) {
		t.Errorf("%q began, not the detachment from the other node", begun)
	}
}

func TestFair_namespacesTakeTurns(t *testing.T) {
	q := newQueued(1)
	for i := range 4 {
		q.add(fmt.Sprint("a", i), Flow{Namespace: "a"})
	}
	q.add("b0", Flow{Namespace: "b"})
	q.add("b1", Flow{Namespace: "b"})
	q.add("c0", Flow{Namespace: "c"})
	var order []string
	for begun := q.begin(); len(begun) > 0; begun = q.begin() {
		order = append(order, begun...)
		q.end(begun[0])
	}
	if want := []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}; !slices.Equal(order, want) {
		t.Errorf("the keys began in the order %q, want %q", order, want)
	}
}

func TestFair_withoutFlowsIsAFIFO(t *testing.T) {
	f := newFair(2, nil)
	for _, key := range []string{"c", "a", "b"} {
		f.Push(key)
	}
	var order []string
	for range 2 {
		if !f.choose() {
			t.Fatal("no key may begin")
		}
		order = append(order, f.Pop())
	}
	if f.choose() {
		t.Error("a third key began for two workers")
	}
	f.finished("c")
	if !f.choose() {
		t.Fatal("no key may begin after one has ended")
	}
	if order = append(order, f.Pop()); !slices.Equal(order, []string{"c", "a", "b"}) {
		t.Errorf("the order is %q", order)
	}
}

// TestFair_model adds and ends keys of random flows in a random order.
func TestFair_model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 9).Draw(t, "workers")
		q := newQueued(workers)
		flows := rapid.Custom(func(t *rapid.T) Flow {
			return Flow{
				Call: rapid.SampledFrom([]string{"Create", "Delete"}).Draw(t, "call"), Class: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "class"),
				Node: rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"), Namespace: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"),
			}
		})
		added := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 12).Draw(t, "keys") {
					q.add(fmt.Sprint(added), flows.Draw(t, "flow"))
					added++
				}
				q.begin()
			},
			"end": func(t *rapid.T) {
				if len(q.working) > 0 {
					q.end(rapid.SampledFrom(slices.Sorted(maps.Keys(q.working))).Draw(t, "key"))
					q.begin()
				}
			},
			"": func(t *rapid.T) { checkFair(t, q, workers) },
		})
		for len(q.working) > 0 {
			for key := range maps.Clone(q.working) {
				q.end(key)
			}
			q.begin()
		}
		if len(q.waiting) > 0 || q.count() > 0 || len(q.root.known) > 0 || q.root.turns.Len() > 0 || len(q.running) > 0 {
			t.Fatalf("at the end %d keys wait, and %d branches remain", len(q.waiting), len(q.root.known))
		}
	})
}

// checkFair checks the bounds, and that no worker is idle that a waiting key may have.
func checkFair(t *rapid.T, q *queued, workers int) {
	all := q.held(func(Flow) bool { return true })
	if most := max(1, 2*workers); all > most || workers == 1 && all > 1 {
		t.Fatalf("%d keys are in progress, for %d workers", all, workers)
	}
	if q.count() != len(q.waiting) {
		t.Fatalf("%d keys wait, and the queue counts %d", len(q.waiting), q.count())
	}
	total := q.workers
	for key := range q.waiting {
		flow := q.flows[key]
		same := func(f Flow) bool { return f.Call == flow.Call && f.Class == flow.Class }
		class := q.held(same)
		if class > workers {
			t.Fatalf("class %q has %d workers of %d", flow.Class, class, workers)
		}
		if all < total && class == 0 {
			t.Fatalf("%+v waits, its class has no worker, and %d of %d are free", flow, total-all, total)
		}
		free := (total - (all - class) + 1) / 2
		if node := q.held(func(f Flow) bool { return same(f) && f.Node == flow.Node }); flow.Node != "" {
			free = (free - (class - node) + 1) / 2
			class = node
		}
		if class < free {
			t.Fatalf("%+v waits, and has %d of %d workers", flow, class, free)
		}
	}
}
