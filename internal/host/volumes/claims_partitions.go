package volumes

import "sync"

// partitions maps each object to its storage class or driver. The queues process each
// partition separately, so that a hung driver delays only its own volumes. The map
// exists because reading the store could block.
type partitions struct {
	mu sync.Mutex
	of map[string]string // by resource/key
}

func (l *partitions) set(name, partition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]string{}
	}
	if partition == "" {
		delete(l.of, name)
		return
	}
	l.of[name] = partition
}

func (l *partitions) partition(resource string) func(key string) string {
	return func(key string) string {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.of[dependency(resource, key)]
	}
}

// memories has facts about objects with failures, by resource/key or UID. It is lost with
// the process.
type memories[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

func (m *memories[T]) get(name string) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[name]
}

func (m *memories[T]) set(name string, value T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]T{}
	}
	m.known[name] = value
}

// each calls do for each fact. do must not call the memories.
func (m *memories[T]) each(do func(name string, value T)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, value := range m.known {
		do(name, value)
	}
}

func (m *memories[T]) drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}
