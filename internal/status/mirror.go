// Package status is what the status page shows of a host or of a cluster: the objects
// and drivers, what waits and why, and the steps of each object. It reads only. The
// objects are in memory while somebody looks at the page, and watches keep them current.
package status

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// Object is an object of the Kubernetes API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Mirror has the objects of a source in memory. It is safe for concurrent use. The
// objects are shared: readers do not change them.
type Mirror struct {
	mu      sync.RWMutex
	tables  map[string]*table // by kind
	events  map[about][]*corev1.Event
	steps   steps
	drivers []Driver
	pools   []Pool
	// problems are what cannot be read, by its name.
	problems map[string]string
	changed  chan struct{} // closed and replaced after a change
}

// table has the objects of a kind.
type table struct {
	synced  bool
	objects map[string]Object
}

// about names an object that events are about.
type about struct{ kind, key string }

func newMirror() *Mirror {
	return &Mirror{
		tables: map[string]*table{}, events: map[about][]*corev1.Event{}, steps: newSteps(),
		problems: map[string]string{}, changed: make(chan struct{}),
	}
}

// Changed returns a channel that is closed after the next change.
func (m *Mirror) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

// change runs a change of the mirror and notifies readers.
func (m *Mirror) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	close(m.changed)
	m.changed = make(chan struct{})
}

// put adds or replaces an object.
func (m *Mirror) put(kind string, object Object) {
	m.change(func() {
		t := m.table(kind)
		m.forget(kind, t.objects[keyOf(object)])
		t.objects[keyOf(object)] = object
		m.index(object)
	})
}

// remove removes an object.
func (m *Mirror) remove(kind, key string) {
	m.change(func() {
		t := m.table(kind)
		m.forget(kind, t.objects[key])
		delete(t.objects, key)
	})
}

// replace has all objects of a kind.
func (m *Mirror) replace(kind string, objects []Object) {
	m.change(func() {
		t := &table{synced: true, objects: make(map[string]Object, len(objects))}
		m.tables[kind] = t
		if kind == kindEvent {
			m.events = map[about][]*corev1.Event{}
		}
		for _, object := range objects {
			t.objects[keyOf(object)] = object
			m.index(object)
		}
		delete(m.problems, kind)
	})
}

// problem notes that a kind cannot be read. Pages are shown without it.
func (m *Mirror) problem(kind, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.problems[kind] == text {
		return
	}
	m.problems[kind] = text
	close(m.changed)
	m.changed = make(chan struct{})
}

// ready reports whether every one of these kinds was read, or cannot be read.
func (m *Mirror) ready(kinds []string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return !slices.ContainsFunc(kinds, func(kind string) bool {
		return m.problems[kind] == "" && (m.tables[kind] == nil || !m.tables[kind].synced)
	})
}

// current reports whether a kind was read, and nothing is wrong with it since.
func (m *Mirror) current(kind string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.problems[kind] == "" && m.tables[kind] != nil && m.tables[kind].synced
}

// wasRead reports whether a kind was ever read.
func (m *Mirror) wasRead(kind string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.tables[kind] != nil && m.tables[kind].synced
}

// lost notes that the objects of a kind are not kept current. Before they were read, that
// is no news.
func (m *Mirror) lost(kind string) {
	if m.wasRead(kind) {
		m.problem(kind, "the connection is lost: the objects are as they were before; the page connects again")
	}
}

// recovered notes that the objects of a kind are kept current again.
func (m *Mirror) recovered(kind string) {
	if m.wasRead(kind) && !m.current(kind) {
		m.change(func() { delete(m.problems, kind) })
	}
}

func (m *Mirror) table(kind string) *table {
	if m.tables[kind] == nil {
		m.tables[kind] = &table{objects: map[string]Object{}}
	}
	return m.tables[kind]
}

// index finds events by the object that they are about.
func (m *Mirror) index(object Object) {
	if event, ok := object.(*corev1.Event); ok {
		of := aboutEvent(event)
		m.events[of] = append(m.events[of], event)
	}
}

func (m *Mirror) forget(kind string, object Object) {
	event, ok := object.(*corev1.Event)
	if !ok || kind != kindEvent {
		return
	}
	of := aboutEvent(event)
	m.events[of] = slices.DeleteFunc(m.events[of], func(e *corev1.Event) bool { return e == event })
	if len(m.events[of]) == 0 {
		delete(m.events, of)
	}
}

func aboutEvent(event *corev1.Event) about {
	return about{event.InvolvedObject.Kind, joined(event.InvolvedObject.Namespace, event.InvolvedObject.Name)}
}

// record adds an entry of a host's journal.
func (m *Mirror) record(entry journal.Entry) {
	if entry.Step != nil {
		m.change(func() { m.steps.add(entry) })
	}
}

// setDrivers and setPools replace what was known, and notify readers of a difference.
func (m *Mirror) setDrivers(drivers []Driver) {
	m.setIf(func() bool { return !equalDrivers(m.drivers, drivers) }, func() { m.drivers = drivers })
}

func (m *Mirror) setPools(pools []Pool) {
	m.setIf(func() bool { return !slices.Equal(m.pools, pools) }, func() { m.pools = pools })
}

func (m *Mirror) setIf(differs func() bool, set func()) {
	m.mu.RLock()
	changes := differs()
	m.mu.RUnlock()
	if changes {
		m.change(set)
	}
}

// all returns the objects of a kind, in the order of their keys.
func all[T Object](m *Mirror, kind string) []T {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.tables[kind]
	if t == nil {
		return nil
	}
	objects := make([]T, 0, len(t.objects))
	for _, object := range t.objects {
		if typed, ok := object.(T); ok {
			objects = append(objects, typed)
		}
	}
	slices.SortFunc(objects, func(a, b T) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return objects
}

// one returns an object; ok is false if there is none.
func one[T Object](m *Mirror, kind, key string) (object T, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if t := m.tables[kind]; t != nil {
		object, ok = t.objects[key].(T)
	}
	return object, ok
}

func keyOf(object metav1.Object) string { return joined(object.GetNamespace(), object.GetName()) }

func joined(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
