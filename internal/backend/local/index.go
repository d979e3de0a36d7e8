package local

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// index lists the complete entries of the pool, as last read from or written to their
// records, so that listing and finding do not touch the disk.
type index struct {
	mu        sync.RWMutex
	volumes   map[string]volumeRecord // inline volumes too
	snapshots map[string]snapshotRecord
	groups    map[string]groupRecord
	broken    map[string]error // IDs whose record cannot be used, and why
}

func (x *index) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.volumes = map[string]volumeRecord{}
	x.snapshots = map[string]snapshotRecord{}
	x.groups = map[string]groupRecord{}
	x.broken = map[string]error{}
}

func lookup[T any](x *index, from func(*index) map[string]T, id string) (T, bool, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if err := x.broken[id]; err != nil {
		var none T
		return none, false, fmt.Errorf("%s cannot be used and is not changed: %w", id, err)
	}
	found, ok := from(x)[id]
	return found, ok, nil
}

func (x *index) volume(id string) (volumeRecord, bool, error) {
	return lookup(x, func(x *index) map[string]volumeRecord { return x.volumes }, id)
}

func (x *index) snapshot(id string) (snapshotRecord, bool, error) {
	return lookup(x, func(x *index) map[string]snapshotRecord { return x.snapshots }, id)
}

func (x *index) group(id string) (groupRecord, bool, error) {
	return lookup(x, func(x *index) map[string]groupRecord { return x.groups }, id)
}

func (x *index) update(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

// putVolume enters a volume, whose record can be used from now on.
func (x *index) putVolume(r volumeRecord) {
	x.update(func() {
		x.volumes[r.ID] = r
		delete(x.broken, r.ID)
	})
}

func (x *index) putSnapshots(records ...snapshotRecord) {
	x.update(func() {
		for _, r := range records {
			x.snapshots[r.ID] = r
			delete(x.broken, r.ID)
		}
	})
}

func (x *index) putGroup(r groupRecord) {
	x.update(func() {
		x.groups[r.ID] = r
		delete(x.broken, r.ID)
	})
}

func (x *index) breakEntry(id string, why error) { x.update(func() { x.broken[id] = why }) }

// forget removes the ID of a volume, snapshot or group.
func (x *index) forget(id string) {
	x.update(func() {
		delete(x.volumes, id)
		delete(x.snapshots, id)
		delete(x.groups, id)
		delete(x.broken, id)
	})
}

func (x *index) brokenEntries() map[string]error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return maps.Clone(x.broken)
}

// page selects records with IDs after the given one, in the order of their
// IDs, at most limit (0: all).
func page[T any](x *index, from func(*index) map[string]T, keep func(T) bool, after string, limit int) []T {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var ids []string
	for id, record := range from(x) {
		if id > after && keep(record) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
	}
	records := make([]T, len(ids))
	for i, id := range ids {
		records[i] = from(x)[id]
	}
	return records
}
