package intent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// write is a planned write of one slot: what it holds and still counts, and more.
type write struct {
	slot    *slot
	entries map[string]string
	parts   map[string][]byte
	keep    bool // also without content
}

// planner plans writes. Its user holds the Store's lock.
type planner[T any] struct {
	*Store[T]
	writes  map[*slot]*write
	entries map[string]string // for any slot of the log
	parts   map[string][]byte // shared parts that are not stored
}

// of returns the write of a slot.
func (p *planner[T]) of(t *slot) *write {
	if p.writes[t] == nil {
		p.writes[t] = &write{slot: t, entries: map[string]string{}}
	}
	return p.writes[t]
}

// all returns the writes in a fixed order.
func (p *planner[T]) all() []*write {
	return slices.SortedFunc(maps.Values(p.writes), func(a, b *write) int { return cmp.Compare(a.slot.name, b.slot.name) })
}

func (p *planner[T]) add(entry, text string) {
	if p.entries == nil {
		p.entries = map[string]string{}
	}
	p.entries[entry] = text
}

// change plans what a change needs, or finishes it. An intent of this process's log gets a
// change, which is small. One of another store, a damaged one, one that was removed, and
// copies that several processes wrote are replaced where they are: whoever else writes to
// them has a conflict.
func (p *planner[T]) change(key string, c *change[T]) {
	stored := p.view.intents(key, p.options.Node)
	if slices.ContainsFunc(stored, func(r *record) bool { return r.slot.node != p.options.Node }) {
		p.replace(key, stored, c)
		return
	}
	if !p.hasPart(c) {
		return
	}
	if len(stored) == 0 {
		p.add(key, marshal(envelope{ID: c.id, Part: c.body.part, Intent: []byte(c.body.text)}))
		return
	}
	if base := stored[0]; len(stored) == 1 && p.whole(base) && p.options.logs(base.slot) && (!c.fresh || base.ID == c.id) {
		p.changeOne(key, base, c)
		return
	}
	p.replace(key, stored, c)
}

// whole reports whether an intent can be read, apart from its changes.
func (p *planner[T]) whole(base *record) bool {
	_, stored := p.view.bytes(base.part())
	return base.err == nil && (stored || base.Part == "")
}

// replace plans that an intent is changed where it is stored.
func (p *planner[T]) replace(key string, stored []*record, c *change[T]) {
	done := true
	for _, base := range stored {
		id := base.ID
		if c.fresh || id == "" {
			id = c.id
		}
		if text := p.entryOf(base.slot, id, c); text != base.text {
			p.of(base.slot).entries[base.entry] = text
			done = false
		}
	}
	if done {
		p.finish(key, c)
	}
}

func (p *planner[T]) changeOne(key string, base *record, c *change[T]) {
	next := changeOf(base, c.id, c.body)
	latest := envelope{Of: base.ID}
	changes := p.view.changes(base)
	if len(changes) > 0 {
		latest = changes[len(changes)-1].envelope
	} else if base.Part == c.body.part && string(base.Intent) == c.body.text {
		p.finish(key, c)
		return
	}
	same := latest
	same.ID = next.ID
	if marshal(same) == marshal(next) {
		p.finish(key, c)
		return
	}
	p.add(key+changeSuffix, marshal(next))
}

// hasPart reports whether the shared part of an intent is stored, else plans it.
func (p *planner[T]) hasPart(c *change[T]) bool {
	if _, stored := p.view.bytes(part{p.options.Node, c.body.part}); stored || c.body.part == "" {
		return true
	}
	if p.parts == nil {
		p.parts = map[string][]byte{}
	}
	p.parts[c.body.part] = c.body.bytes
	return false
}

// resolve plans to write the slots whose last write may still arrive, so that it does not,
// and reports whether there are any. Entries that have room go there.
func (p *planner[T]) resolve() bool {
	planned := p.writes
	p.writes = map[*slot]*write{}
	for _, t := range p.view.slots {
		if !t.stale {
			continue
		}
		w := p.of(t)
		if planned[t] != nil {
			w.entries = planned[t].entries
		}
		if size := bytesOf(p.entries); p.usable(t) && len(p.parts) == 0 && p.carried(t, p.entries)+bytesOf(w.entries)+size <= p.options.SlotBytes {
			maps.Copy(w.entries, p.entries)
			clear(p.entries)
		}
	}
	if len(p.writes) > 0 {
		return true
	}
	p.writes = planned
	return false
}

// placeParts gives each shared part a slot of its own, which holds nothing else.
func (p *planner[T]) placeParts() {
	for _, name := range slices.Sorted(maps.Keys(p.parts)) {
		p.of(p.empty()).parts = map[string][]byte{name: p.parts[name]}
	}
}

// placeEntries gives the entries that may go anywhere to slots.
func (p *planner[T]) placeEntries() {
	for len(p.entries) > 0 {
		group, size := map[string]string{}, 0
		for entry, text := range p.entries {
			if more := len(entry) + len(text); size == 0 || size+more <= p.options.SlotBytes {
				group[entry], size = text, size+more
				delete(p.entries, entry)
			}
		}
		maps.Copy(p.of(p.choose(group, size)).entries, group)
	}
}

// created returns the writes of objects that do not exist. They are created empty.
func (p *planner[T]) created() (found []*write) {
	for _, w := range p.all() {
		if w.slot.object == nil {
			found = append(found, &write{slot: w.slot})
		}
	}
	return found
}

// choose returns the slot for new entries: one that is written anyway, else the one whose
// remaining records are the fewest bytes, else a new one.
func (p *planner[T]) choose(group map[string]string, size int) *slot {
	for _, w := range p.all() {
		if t := w.slot; p.usable(t) && p.carried(t, group)+bytesOf(w.entries)+size <= p.options.SlotBytes {
			return t
		}
	}
	var best *slot
	least := p.options.SlotBytes - size + 1
	for _, name := range slices.Sorted(maps.Keys(p.view.slots)) {
		if t := p.view.slots[name]; p.usable(t) && p.writes[t] == nil {
			if carried := p.carried(t, group); carried < least && carried <= p.repeatable(t) {
				best, least = t, carried
			}
		}
	}
	if best == nil {
		return p.free()
	}
	return best
}

// repeatable returns how many bytes of earlier records a write of a slot may repeat. They grow
// with the number of slots, so that many intents that stay need few: a process that takes over
// writes to each.
func (p *planner[T]) repeatable(t *slot) int {
	bytes := carriedBytes * max(fewSlots, len(p.view.slots)) / fewSlots
	if t.alone {
		bytes *= aloneFactor
	}
	return bytes
}

func (p *planner[T]) usable(t *slot) bool {
	return p.options.logs(t) && t.object != nil && len(parts(t.object)) == 0
}

// carried returns how many bytes of a slot a write of new entries repeats.
func (p *planner[T]) carried(t *slot, group map[string]string) int {
	size := 0
	_, unused := p.unused[t]
	for entry, r := range t.all {
		if _, replaced := group[entry]; replaced || unused && p.droppable(r) {
			continue
		}
		if size += len(entry) + len(r.text); size > p.options.SlotBytes {
			break
		}
	}
	return size
}

func bytesOf(entries map[string]string) (size int) {
	for entry, text := range entries {
		size += len(entry) + len(text)
	}
	return size
}

// empty returns a slot without records.
func (p *planner[T]) empty() *slot {
	for _, t := range p.view.slots {
		if p.usable(t) && len(t.all) == 0 && p.writes[t] == nil {
			return t
		}
	}
	return p.free()
}

// free returns a new slot.
func (p *planner[T]) free() *slot {
	for i := 0; ; i++ {
		name := p.options.slotName(i)
		if p.view.slots[name] == nil && !slices.ContainsFunc(p.all(), func(w *write) bool { return w.slot.name == name }) {
			return &slot{name: name, node: p.options.Node}
		}
	}
}

// sweep plans the removal of records that no longer count.
func (p *planner[T]) sweep(last bool) {
	if p.behind {
		return
	}
	for key := range p.dead {
		if !p.holds(key) {
			p.bury(key)
		}
	}
	for t, since := range p.unused {
		if !p.removable(t) {
			delete(p.unused, t)
			continue
		}
		if last || time.Since(since) >= p.grace(t) || p.awaited(t) {
			p.of(t).keep = !last && p.first(t) && len(t.all) > 0
		}
	}
}

// grace returns how long a slot stays as it is, with what no longer counts.
func (p *planner[T]) grace(t *slot) time.Duration {
	switch {
	case len(parts(t.object)) > 0:
		return partGrace * p.options.FlushAfter
	case len(t.all) == 0 && p.first(t):
		return p.options.KeepEmpty
	}
	return p.options.FlushAfter
}

// first reports whether a slot is the first one of the log that takes entries. It stays for a
// while when it is empty.
func (p *planner[T]) first(t *slot) bool {
	if !p.usable(t) {
		return false
	}
	for name, other := range p.view.slots {
		if name < t.name && p.usable(other) {
			return false
		}
	}
	return true
}

// awaited reports whether a caller of RemoveNow waits for a write of the slot.
func (p *planner[T]) awaited(t *slot) bool {
	if len(p.waiting) == 0 {
		return false
	}
	for _, r := range t.all {
		if p.waiting[r.key] != nil && p.droppable(r) {
			return true
		}
	}
	return false
}

// removable reports whether a slot has something that no longer counts.
func (s *Store[T]) removable(t *slot) bool {
	if t.object == nil {
		return false
	}
	if len(t.all) == 0 && len(parts(t.object)) == 0 {
		return s.options.owns(t)
	}
	for _, r := range t.all {
		if s.droppable(r) {
			return true
		}
	}
	for name := range parts(t.object) {
		if s.unneeded(t, name) {
			return true
		}
	}
	return false
}

// unneeded reports whether no record refers to a part in a slot, nor a change that is being
// written.
func (s *Store[T]) unneeded(t *slot, name string) bool {
	if !s.options.owns(t) || t.shared || s.view.uses[part{t.node, name}] > 0 {
		return false
	}
	for _, c := range s.writing {
		if c.body.part == name {
			return false
		}
	}
	return true
}

// droppable reports whether the next write of its slot leaves a record out. No state of an
// intent may count again that a later one has replaced: an intent goes when no earlier
// copy is stored, and its changes when it is gone itself, or goes with the same write.
func (s *Store[T]) droppable(r *record) bool {
	if r.slot.node != s.options.Node && !s.taken[r.key] {
		return false // nor are all records of the key known
	}
	if r.change {
		return r.superseded || !slices.ContainsFunc(s.view.records[r.key], func(intent *record) bool {
			return r.isFor(intent) && (intent.slot != r.slot || !s.droppable(intent))
		})
	}
	if _, dead := s.dead[r.key]; !dead {
		return false
	}
	return s.view.intents(r.key, s.options.Node)[0].slot == r.slot
}

// content returns what a write makes of its slot.
func (s *Store[T]) content(w *write) *corev1.ConfigMap {
	next := s.options.newObject(w.slot)
	if w.slot.object != nil {
		next.ObjectMeta = *w.slot.object.ObjectMeta.DeepCopy()
	}
	next.Data, next.BinaryData = map[string]string{}, map[string][]byte{}
	for entry, r := range w.slot.all {
		if !s.droppable(r) {
			next.Data[entry] = r.text
		}
	}
	maps.Copy(next.Data, w.entries)
	for name, bytes := range parts(w.slot.object) {
		if !s.unneeded(w.slot, name) {
			next.BinaryData[name] = bytes
		}
	}
	maps.Copy(next.BinaryData, w.parts)
	return next
}

// reconsider notes the slots of a key's records that no longer count. The caller holds
// the lock.
func (s *Store[T]) reconsider(key string) {
	since, dead := s.dead[key]
	if !dead {
		since = time.Now()
	}
	for _, r := range s.view.records[key] {
		if s.droppable(r) {
			s.noteUnused(r.slot, since)
		}
	}
}

func (s *Store[T]) noteUnused(t *slot, since time.Time) {
	if earlier, known := s.unused[t]; !known || since.Before(earlier) {
		s.unused[t] = since
	}
}

// bury ends a removal: no object has the intent any more. The caller holds the lock.
func (s *Store[T]) bury(key string) {
	s.reconsider(key)
	delete(s.dead, key)
	for _, done := range s.waiting[key] {
		done <- nil
	}
	delete(s.waiting, key)
}
