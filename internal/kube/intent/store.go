// Package intent stores intents: descriptions of the objects that a process is about to
// create, written before the creation, so that they survive a crash.
//
// A Store is a log in ConfigMaps of the process's own namespace. One write carries the
// changes of many callers (group commit) and contains each intent once: a new intent
// whole, a later change as the fields that differ, and large parts that many intents
// share once for all of them. The write goes to a slot: a new ConfigMap, or an earlier one
// whose records no longer count, which the same write removes. So a commit is one small
// write, and removals cost none as long as others follow.
//
// A Store belongs to one driver and, if every node has its own controllers, to one
// node. It also takes over the intents of earlier stores of the driver that no process
// serves any more. A central process takes over all of them, since a controller that
// ran on a node may not start again. A node takes over those intents of a central process
// that are for this node.
//
// A record is removed only when no older record of its key remains: after a crash between
// two writes, no earlier state of an intent counts again. Two processes that both
// consider themselves the owner (one noticed late that it lost the lease) cannot undo each
// other's intents. A process that takes over writes its mark to every object, and every
// write requires the version of the object that was read. An object is created empty, so
// that a creation which arrives late has no effect either. After a conflict the Store
// reads all objects again, marks them again and merges both versions of an intent.
//
// The Store does not interpret intents, and deletes one only when its caller asks.
package intent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// The defaults of Options.
const (
	// DefaultWindow is how long a write waits for further intents to join it.
	DefaultWindow = 5 * time.Millisecond
	// DefaultSpacing is the least time between two writes: at 100 intents per
	// second, one write carries five of them and the removals of five others.
	DefaultSpacing = 50 * time.Millisecond
	// DefaultFlushAfter is how long removals wait for a write that is due anyway.
	DefaultFlushAfter = 10 * time.Second
	// DefaultSlotBytes bounds the intents in one object. The API server accepts 1 MiB; a
	// smaller object is cheaper to write again.
	DefaultSlotBytes = 256 << 10
)

const (
	// partBytes bounds a shared part, which has an object of its own.
	partBytes = 1_000_000
	// partGrace is how many times FlushAfter a shared part stays without an intent:
	// the next intent often has the same one.
	partGrace = 6
	// emptyGrace is how many times FlushAfter a log without records keeps its first object:
	// the next intent then costs no creation. It is an hour.
	emptyGrace = 360
	// carriedBytes is how much a write of new records may repeat: as much as another
	// object would cost, with its labels and its deletion.
	carriedBytes = 1 << 10
	// aloneFactor is how many times carriedBytes the change of an intent that came on its own
	// may repeat: another object would be created for it, and emptied or deleted afterwards.
	aloneFactor = 4
	// fewSlots is for how many slots carriedBytes holds.
	fewSlots = 64
)

// ErrAbandoned is a cause for cancelling Run's context: another process acts on the
// intents now, so Run must not write again.
var ErrAbandoned = errors.New("another process acts on the intents now")

// ErrTooLarge is in Put's error for an intent that no object can hold.
var ErrTooLarge = errors.New("the intent is too large")

// ConfigMaps are the calls that the Store makes: a part of client-go's
// ConfigMapInterface, for one namespace.
type ConfigMaps interface {
	Create(ctx context.Context, object *corev1.ConfigMap, options metav1.CreateOptions) (*corev1.ConfigMap, error)
	Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error)
	List(ctx context.Context, options metav1.ListOptions) (*corev1.ConfigMapList, error)
}

// Options of a Store. Its ConfigMaps are in a namespace that holds no others, so that
// the right to change them does not extend to other objects. Zero durations and sizes
// mean the defaults above.
type Options struct {
	ConfigMaps ConfigMaps
	Driver     string
	Node       string // "" for the one store of a central controller
	// Observer is a process that completes no intents. It calls Unserved and RemoveLeft only.
	Observer bool
	// Changed is called with the key of an intent that another process added or
	// removed, once the Store has read the object again. It must not block, and may
	// be nil.
	Changed func(key string)

	Window, Spacing, FlushAfter time.Duration
	KeepEmpty                   time.Duration // for how long the log keeps an empty object
	SlotBytes                   int
	Logger                      *slog.Logger
}

// Kind is what a Store needs to know about its intents. Each function may be nil.
type Kind[T any] struct {
	// NodeOf returns the node that completes an intent of a former central process; ""
	// for none, as without a NodeOf.
	NodeOf func(T) string
	// Merge combines two versions of an intent: a stored one, which another process may
	// have written, and the one that is to replace it. It also combines copies of an
	// intent, the newer one as next. A version that contains the other one must be the
	// result. Without a Merge it is next.
	Merge func(stored, next T) T
	// Split returns an intent without the part that it shares with others, and that
	// part; nil for none. Join is its inverse. Equal parts are stored once.
	Split func(T) (rest T, part []byte)
	Join  func(rest T, part []byte) T
}

// Store stores intents. Call Load once, then Run; from then on it is safe for
// concurrent use.
type Store[T any] struct {
	options Options
	kind    Kind[T]
	writer  string // this process's mark on the objects that it writes

	mu      sync.Mutex
	intents map[string]T          // the intents that are durable and not removed
	pending map[string]*change[T] // the changes that no commit has taken yet
	writing map[string]*change[T] // the changes of the commit that is under way
	view    *view
	dead    map[string]time.Time    // removed intents that are stored, with the time of their removal
	waiting map[string][]chan error // the callers of RemoveNow
	readers []chan error            // the callers that wait until all objects were read again
	unused  map[*slot]time.Time     // slots with records that no longer count, and since when
	taken   map[string]bool         // keys of intents of other stores that this node completes
	foreign map[string]string       // keys of intents that other processes complete, and their objects
	behind  bool                    // objects must be read before the next write
	clock   int64                   // of the last ID
	marks   int                     // how many objects this process has written
	due     chan struct{}           // has room for one signal: a change is pending
	urgent  chan struct{}           // the same, and a caller waits for the write
	ended   chan struct{}           // closed when Run returns
}

// change is a pending change of one key.
type change[T any] struct {
	intent T
	body   body
	remove bool
	id     string    // of its record
	at     time.Time // of the request
	done   chan error
	// fresh says that the intent replaces a removed one that may still be stored.
	fresh bool
}

// New makes an empty Store.
func New[T any](o Options, kind Kind[T]) *Store[T] {
	setDefault(&o.Window, DefaultWindow)
	setDefault(&o.Spacing, DefaultSpacing)
	setDefault(&o.FlushAfter, DefaultFlushAfter)
	setDefault(&o.KeepEmpty, emptyGrace*o.FlushAfter)
	setDefault(&o.SlotBytes, DefaultSlotBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if kind.NodeOf == nil {
		kind.NodeOf = func(T) string { return "" }
	}
	if kind.Merge == nil {
		kind.Merge = func(_, next T) T { return next }
	}
	return &Store[T]{
		options: o, kind: kind, writer: string(uuid.NewUUID()), view: newView(),
		intents: map[string]T{}, pending: map[string]*change[T]{}, writing: map[string]*change[T]{},
		dead: map[string]time.Time{}, waiting: map[string][]chan error{}, unused: map[*slot]time.Time{},
		taken: map[string]bool{}, foreign: map[string]string{},
		due: make(chan struct{}, 1), urgent: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

func setDefault[N int | time.Duration](value *N, standard N) {
	if *value <= 0 {
		*value = standard
	}
}

// Get returns a durable intent.
func (s *Store[T]) Get(key string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	intent, found := s.intents[key]
	return intent, found
}

// All returns every durable intent by its key.
func (s *Store[T]) All() map[string]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.intents)
}

// Len returns the number of durable intents.
func (s *Store[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.intents)
}

// Put writes an intent and returns it as it is stored: merged with an earlier intent of
// the same key, unless that was removed, and with one that another process has written
// meanwhile. It returns when the intent is durable. After an error it may be durable
// nevertheless: once the objects are read again, Get returns it and Changed is called.
func (s *Store[T]) Put(ctx context.Context, key string, next T) (T, error) {
	c, err := s.request(key, next)
	if err != nil {
		return next, err
	}
	select {
	case err := <-c.done:
		if err != nil {
			return next, err
		}
		return c.intent, nil // nothing changes it once it is stored
	case <-ctx.Done():
		return next, fmt.Errorf("write intent %s: %w", key, ctx.Err())
	}
}

// request makes an intent a pending change.
func (s *Store[T]) request(key string, next T) (*change[T], error) {
	if strings.Contains(key, ".") {
		return nil, fmt.Errorf("the key %q of an intent has a dot", key)
	}
	if earlier, found := s.Get(key); found {
		next = s.kind.Merge(earlier, next)
	}
	b, err := s.encode(next)
	if err != nil {
		return nil, fmt.Errorf("intent %s: %w", key, err)
	}
	if size := len(key) + len(b.text); size > s.options.SlotBytes || len(b.bytes) > partBytes {
		return nil, fmt.Errorf("intent %s has %d bytes and a shared part of %d; a ConfigMap of intents holds %d, or a part of %d: %w",
			key, size, len(b.bytes), s.options.SlotBytes, partBytes, ErrTooLarge)
	}
	c := &change[T]{intent: next, body: b, at: time.Now(), done: make(chan error, 1)}
	s.change(key, c)
	signal(s.urgent)
	return c, nil
}

// Remove deletes an intent from memory at once and from its objects with a later
// write. After a crash before that write, Load finds it again.
func (s *Store[T]) Remove(key string) {
	s.change(key, &change[T]{remove: true, at: time.Now()})
	signal(s.due)
}

// RemoveNow is Remove, but returns when no object has the intent.
func (s *Store[T]) RemoveNow(ctx context.Context, key string) error {
	done := make(chan error, 1)
	s.change(key, &change[T]{remove: true, at: time.Now(), done: done})
	signal(s.urgent)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("remove intent %s: %w", key, ctx.Err())
	}
}

// Stored reports whether an object may still hold the key, also after Remove.
func (s *Store[T]) Stored(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[key] != nil || s.writing[key] != nil || s.holds(key)
}

// holds reports whether an intent of the key is stored. The caller holds the lock.
func (s *Store[T]) holds(key string) bool {
	return slices.ContainsFunc(s.view.records[key], func(r *record) bool { return !r.change })
}

// change replaces the pending change of the key, whose caller gets an error.
func (s *Store[T]) change(key string, c *change[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.remove {
		delete(s.intents, key)
	}
	if earlier := s.pending[key]; earlier != nil {
		earlier.finish(fmt.Errorf("intent %s was changed again before it was written", key))
		c.fresh = earlier.remove || earlier.fresh
	}
	s.pending[key] = c
}

// absorb merges an intent that is stored, by another process or by an earlier change, into
// a change that is not written yet. The caller holds the lock.
func (s *Store[T]) absorb(c *change[T], stored T) {
	if c == nil || c.remove || c.fresh {
		return
	}
	merged := s.kind.Merge(stored, c.intent)
	if b, err := s.encode(merged); err == nil { // as in Put
		c.intent, c.body = merged, b
	}
}

func (c *change[T]) finish(err error) {
	if c.done == nil {
		return
	}
	select {
	case c.done <- err:
	default: // the caller has an answer
	}
}

func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
