package work

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// Flow says with which other keys a key shares workers. The keys of one Call and Class
// can hang together, and within them those of one Node. The zero value is a flow, too.
type Flow struct {
	// Call is the driver's call that the key needs, "" if none.
	Call string
	// Class is the class of its volume or snapshot.
	Class string
	// Node is the node to which the call attaches or detaches; "" for other calls.
	Node string
	// Namespace is the one whose user waits.
	Namespace string
}

// fair is a workqueue.Queue that serves flows in turn: the classes first, then the nodes
// of a class, then the namespaces. It follows the fair queuing of API Priority and
// Fairness, which bounds the shares of flows as well.
//
// A class, and a node within its class, has at most half of the workers that its siblings
// leave. So a worker remains for a flow that comes later, although all calls of the
// earlier ones hang (Choudhury and Hahne, "Dynamic queue length thresholds for
// shared-memory packet switches", 1998, with a factor of 1). Namespaces only take turns: the
// calls for one namespace do not hang because of it.
//
// Typed holds its own lock when it calls Push, Len and Pop, and an event handler may hold
// another one when it adds a key. Push therefore does not ask for the flow of a key:
// choose does, without any lock.
type fair struct {
	flow    func(key string) Flow // nil: all keys are of one flow
	workers int                   // keys in progress at most
	changed chan struct{}         // has a value after each change that may let a key start

	mu      sync.Mutex
	pushed  []waiting          // keys whose flow is not known yet
	root    *branch            // all others
	chosen  string             // the key that Pop returns, if Len is 1
	length  int                // 0 or 1
	running map[string]*branch // flows of the keys in progress
}

// waiting is a key that waits for a worker.
type waiting struct {
	key   string
	since time.Time
}

// branch is all keys, those of a class, of a node of a class, or of a namespace of those.
type branch struct {
	parent  *branch
	name    string
	bounded bool               // it has a share of the parent's workers, not all of them
	known   map[string]*branch // children with waiting keys or keys in progress
	turns   *list.List         // of children with waiting keys: the first is served next
	turn    *list.Element      // in the parent's turns; nil if no key waits
	keys    []waiting          // if the branch has no children

	waiting, held int       // keys that wait or are in progress here or below
	moved         time.Time // when a key last began or ended
}

// newFair makes the queue for so many workers of one class. Together, several classes
// have up to twice as many. One worker means one key at a time, whatever its class.
func newFair(workers int, flow func(key string) Flow) *fair {
	all := workers
	if flow != nil && workers > 1 {
		all = 2 * workers
	}
	return &fair{
		flow: flow, workers: all, changed: make(chan struct{}, 1),
		root: newBranch(nil, "", false), running: map[string]*branch{},
	}
}

func newBranch(parent *branch, name string, bounded bool) *branch {
	return &branch{parent: parent, name: name, bounded: bounded, known: map[string]*branch{}, turns: list.New()}
}

// Push implements workqueue.Queue.
func (f *fair) Push(key string) {
	f.mu.Lock()
	f.pushed = append(f.pushed, waiting{key, time.Now()})
	f.mu.Unlock()
	f.notify()
}

// Touch implements workqueue.Queue: a key keeps its place when it is added again.
func (f *fair) Touch(string) {}

// Len implements workqueue.Queue: 1 while a key is chosen. Get does not block then.
func (f *fair) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.length
}

// Pop implements workqueue.Queue: it returns the chosen key.
func (f *fair) Pop() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.chosen
	f.chosen, f.length = "", 0
	return key
}

// notify wakes the caller of choose.
func (f *fair) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// count returns the number of keys that wait.
func (f *fair) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pushed) + f.root.waiting
}

// choose selects the key that begins next. It returns false if none may begin now. One
// goroutine calls it, and pops the key before it calls it again.
func (f *fair) choose() bool {
	f.sort()
	f.mu.Lock()
	defer f.mu.Unlock()
	leaf := f.root.next(f.workers)
	if leaf == nil {
		return false
	}
	f.chosen, f.length = leaf.pop(), 1
	f.running[f.chosen] = leaf
	return true
}

// sort moves the pushed keys to their flows.
func (f *fair) sort() {
	f.mu.Lock()
	pushed := f.pushed
	f.pushed = nil
	f.mu.Unlock()
	for _, one := range pushed {
		var path Flow
		if f.flow != nil {
			path = f.flow(one.key)
		}
		f.mu.Lock()
		f.leaf(path).push(one)
		f.mu.Unlock()
	}
}

// leaf returns the branch of a flow.
func (f *fair) leaf(flow Flow) *branch {
	if f.flow == nil {
		return f.root
	}
	b := f.root.child(flow.Call+" "+flow.Class, true)
	if flow.Node != "" {
		b = b.child("node "+flow.Node, true)
	}
	return b.child("namespace "+flow.Namespace, false)
}

// finished returns the worker of a key. It does nothing for a key that is not in progress.
func (f *fair) finished(key string) {
	f.mu.Lock()
	if leaf, ok := f.running[key]; ok {
		delete(f.running, key)
		leaf.finish()
	}
	f.mu.Unlock()
	f.notify()
}

// stuck returns for how long all workers, or all that a class may have, have been busy
// without finishing a key; 0 if some are free for each class.
func (f *fair) stuck() (longest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root.held >= f.workers {
		longest = time.Since(f.root.moved)
	}
	for _, b := range f.root.known {
		if b.held > 0 && b.held >= b.share(f.workers) {
			longest = max(longest, time.Since(b.moved))
		}
	}
	return longest
}

// all returns the keys that wait, in no order.
func (f *fair) all() []waiting {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.root.below(slices.Clone(f.pushed))
}

// oldest returns since when the key waits that has waited for the longest time; ok is
// false if none waits.
func (f *fair) oldest() (since time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since, ok = f.root.oldest()
	if len(f.pushed) > 0 && (!ok || f.pushed[0].since.Before(since)) {
		return f.pushed[0].since, true
	}
	return since, ok
}

func (b *branch) below(found []waiting) []waiting {
	found = append(found, b.keys...)
	for _, child := range b.known {
		found = child.below(found)
	}
	return found
}

func (b *branch) oldest() (since time.Time, ok bool) {
	if len(b.keys) > 0 {
		return b.keys[0].since, true
	}
	for _, child := range b.known {
		if first, waits := child.oldest(); waits && (!ok || first.Before(since)) {
			since, ok = first, true
		}
	}
	return since, ok
}

func (b *branch) child(name string, bounded bool) *branch {
	found := b.known[name]
	if found == nil {
		found = newBranch(b, name, bounded)
		b.known[name] = found
	}
	return found
}

// share returns how many workers a branch may have if its parent may have so many: all
// that its siblings leave, or half of those.
func (b *branch) share(ofParent int) int {
	left := ofParent - (b.parent.held - b.held)
	if b.bounded {
		return (left + 1) / 2
	}
	return left
}

// next returns the branch, among this one with at most so many workers and its children,
// whose first key is next; nil if no waiting key may begin.
func (b *branch) next(workers int) *branch {
	if b.waiting == 0 || b.held >= workers {
		return nil
	}
	if len(b.keys) > 0 {
		return b
	}
	for turn := b.turns.Front(); turn != nil; turn = turn.Next() {
		child, _ := turn.Value.(*branch)
		if leaf := child.next(child.share(workers)); leaf != nil {
			return leaf
		}
	}
	return nil
}

// push adds a key that waits.
func (b *branch) push(one waiting) {
	b.keys = append(b.keys, one)
	for ; b != nil; b = b.parent {
		b.waiting++
		if b.turn == nil && b.parent != nil {
			b.turn = b.parent.turns.PushBack(b)
		}
	}
}

// pop removes the first key, which is in progress from now on. The siblings of the branch
// and of those above it have their turn before it.
func (b *branch) pop() string {
	key := b.keys[0].key
	b.keys[0] = waiting{}
	b.keys = b.keys[1:]
	for now := time.Now(); b != nil; b = b.parent {
		b.waiting--
		b.held++
		b.moved = now
		switch {
		case b.parent == nil:
		case b.waiting == 0:
			b.parent.turns.Remove(b.turn)
			b.turn = nil
		default:
			b.parent.turns.MoveToBack(b.turn)
		}
	}
	return key
}

// finish ends the progress of a key, and forgets branches without keys.
func (b *branch) finish() {
	for now := time.Now(); b != nil; b = b.parent {
		b.held--
		b.moved = now
		if b.parent != nil && b.held == 0 && b.waiting == 0 {
			delete(b.parent.known, b.name)
		}
	}
}
