package concurrency

import (
	"sync"
	"time"
)

// Expiring is a map whose entries expire. The lifetime of an entry begins when it is
// set, and a read does not extend it. The zero value is ready to use.
type Expiring[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]expiringEntry[V]
	swept   time.Time
}

type expiringEntry[V any] struct {
	value   V
	expires time.Time
}

// Get returns the value of a key; ok is false if it was not set or has expired.
func (m *Expiring[K, V]) Get(key K) (value V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key, time.Now())
}

// Set sets the value of a key for a lifetime.
func (m *Expiring[K, V]) Set(key K, value V, lifetime time.Duration) {
	m.Update(key, lifetime, func(V, bool) V { return value })
}

// Update sets a key for a lifetime to what change makes of its value; ok is false if
// it has none. change must not call the map.
func (m *Expiring[K, V]) Update(key K, lifetime time.Duration, change func(value V, ok bool) V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.sweep(now, lifetime)
	m.entries[key] = expiringEntry[V]{change(m.get(key, now)), now.Add(lifetime)}
}

// Adjust changes the value of a key, if it has one, and not its lifetime. change must
// not call the map.
func (m *Expiring[K, V]) Adjust(key K, change func(V) V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok := m.get(key, time.Now()); ok {
		m.entries[key] = expiringEntry[V]{change(value), m.entries[key].expires}
	}
}

// Delete removes a key.
func (m *Expiring[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// All returns the entries that have not expired.
func (m *Expiring[K, V]) All() map[K]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	all := make(map[K]V, len(m.entries))
	for key := range m.entries {
		if value, ok := m.get(key, now); ok {
			all[key] = value
		}
	}
	return all
}

func (m *Expiring[K, V]) get(key K, now time.Time) (value V, ok bool) {
	entry, ok := m.entries[key]
	if !ok || !now.Before(entry.expires) {
		return value, false
	}
	return entry.value, true
}

// sweep removes the entries that have expired, at most once in a lifetime.
func (m *Expiring[K, V]) sweep(now time.Time, lifetime time.Duration) {
	if m.entries == nil {
		m.entries = map[K]expiringEntry[V]{}
	}
	if now.Sub(m.swept) < lifetime {
		return
	}
	m.swept = now
	for key, entry := range m.entries {
		if !now.Before(entry.expires) {
			delete(m.entries, key)
		}
	}
}
