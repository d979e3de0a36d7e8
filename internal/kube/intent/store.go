// Package intent stores intents: descriptions of the objects that a process is about to
// create, written before the creation, so that they survive a crash. Intents are entries of ConfigMaps in the
// process's own namespace. One ConfigMap holds many intents, and one write carries the
// changes of many callers (group commit), so that a burst of intents costs few writes.
//
// A Store belongs to one driver and, if every node has its own controllers, to one
// node. It also takes over the intents of earlier stores of the driver that no process
// serves any more. A central process takes over all of them, since a controller that
// ran on a node may not start again. A node takes over those intents of a central process
// that are for this node. Two processes that both consider themselves the owner (one
// noticed late that it lost the lease) cannot undo each other's intents: every write
// requires the version of the object that was read, and after a conflict the Store
// reads the object again and merges both versions of an intent.
//
// The Store does not interpret intents, and deletes one only when its caller asks.
package intent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// DefaultShardBytes bounds one object. The API server accepts 1 MiB; a smaller
	// object is cheaper to write again.
	DefaultShardBytes = 256 << 10
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
	// Changed is called with the key of an intent that another process added or
	// removed, once the Store has read the object again. It must not block, and may
	// be nil.
	Changed func(key string)

	Window, Spacing, FlushAfter time.Duration
	ShardBytes                  int
	Logger                      *slog.Logger
}

// Store stores intents. Call Load once, then Run; from then on it is safe for
// concurrent use.
type Store[T any] struct {
	options Options
	nodeOf  func(T) string // the node that an intent of a central process is for
	merge   func(stored, next T) T
	writer  string // this process's mark on the objects that it takes over

	mu      sync.Mutex
	intents map[string]T          // the intents that are durable and not removed
	pending map[string]*change[T] // the changes that are not written yet
	shards  []*shard
	foreign map[string]string // keys of intents that other processes complete, and their objects
	due     chan struct{}     // has room for one signal: a change is pending
	urgent  chan struct{}     // the same, and a caller waits for the write
}

// change is a pending change of one key.
type change[T any] struct {
	intent T
	text   string // the intent as JSON; "" to remove it
	done   chan error
	// unwritten is how many objects still lack the change: more than one if the outcome
	// of an earlier write is unknown. At 0 the change is durable.
	unwritten int
	// after says that the change replaced a removal that was not written: if the
	// change fails, the removal is due again.
	after bool
}

// New makes an empty Store. nodeOf returns the node that completes an intent of a
// former central process, "" for none; a nil nodeOf always returns "".
//
// merge combines two versions of an intent: a stored one, which another process may have
// written, and the one that is to replace it. It also combines the copies of an intent
// that a write of unknown outcome may leave in two objects, the newer one as next. A nil
// merge returns next.
func New[T any](o Options, nodeOf func(T) string, merge func(stored, next T) T) *Store[T] {
	setDefault(&o.Window, DefaultWindow)
	setDefault(&o.Spacing, DefaultSpacing)
	setDefault(&o.FlushAfter, DefaultFlushAfter)
	setDefault(&o.ShardBytes, DefaultShardBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if nodeOf == nil {
		nodeOf = func(T) string { return "" }
	}
	if merge == nil {
		merge = func(_, next T) T { return next }
	}
	return &Store[T]{
		options: o, nodeOf: nodeOf, merge: merge, writer: string(uuid.NewUUID()),
		intents: map[string]T{}, pending: map[string]*change[T]{}, foreign: map[string]string{},
		due: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
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
// nevertheless: once the object is read again, Get returns it and Changed is called.
func (s *Store[T]) Put(ctx context.Context, key string, next T) (T, error) {
	if earlier, found := s.Get(key); found {
		next = s.merge(earlier, next)
	}
	text, err := json.Marshal(next)
	if err != nil {
		return next, fmt.Errorf("intent %s: %w", key, err)
	}
	if size := len(key) + len(text); size > s.options.ShardBytes {
		return next, fmt.Errorf("intent %s has %d bytes; a ConfigMap of intents holds %d: %w",
			key, size, s.options.ShardBytes, ErrTooLarge)
	}
	done := make(chan error, 1)
	c := &change[T]{intent: next, text: string(text), done: done}
	s.change(key, c)
	signal(s.urgent)
	select {
	case err := <-done:
		if err != nil {
			return next, err
		}
		return c.intent, nil // nothing changes it once it is stored
	case <-ctx.Done():
		return next, fmt.Errorf("write intent %s: %w", key, ctx.Err())
	}
}

// Remove deletes an intent from memory at once and from the object with a later
// write. After a crash before that write, Load finds it again.
func (s *Store[T]) Remove(key string) {
	s.change(key, &change[T]{})
	signal(s.due)
}

// RemoveNow is Remove, but returns when the object lacks the intent.
func (s *Store[T]) RemoveNow(ctx context.Context, key string) error {
	done := make(chan error, 1)
	s.change(key, &change[T]{done: done})
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
	return s.pending[key] != nil || len(s.holders(key)) > 0
}

// change replaces the pending change of the key, whose caller gets an error.
func (s *Store[T]) change(key string, c *change[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.text == "" {
		delete(s.intents, key)
	}
	if earlier := s.pending[key]; earlier != nil {
		earlier.finish(fmt.Errorf("intent %s was changed again before it was written", key))
		c.after = earlier.text == "" || earlier.after
	}
	s.pending[key] = c
}

// absorb merges an intent that is stored, by another process or by an earlier change, into
// a change that is not written yet. A removal stays a removal. The caller holds the lock.
func (s *Store[T]) absorb(c *change[T], stored T) {
	if c.text == "" {
		return
	}
	merged := s.merge(stored, c.intent)
	if text, err := json.Marshal(merged); err == nil { // as in Put
		c.intent, c.text = merged, string(text)
	}
}

func (c *change[T]) finish(err error) {
	if c.done == nil {
		return
	}
	select {
	case c.done <- err:
	default: // writes to two objects can fail
	}
}

func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
