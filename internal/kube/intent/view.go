package intent

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// view is what is stored, as far as this process knows.
type view struct {
	slots   map[string]*slot          // by name
	records map[string][]*record      // by key
	shared  map[part]map[*slot][]byte // where parts are
	uses    map[part]int              // how many records refer to a part
}

// part identifies what intents of one store share. Stores share nothing: a process does not
// know all intents of another one's.
type part struct{ node, name string }

// part returns the shared part that a record refers to; without a name for none.
func (r *record) part() part { return part{r.slot.node, r.Part} }

func newView() *view {
	return &view{
		slots: map[string]*slot{}, records: map[string][]*record{},
		shared: map[part]map[*slot][]byte{}, uses: map[part]int{},
	}
}

// put replaces what a slot holds; object is nil if it does not exist. It returns the
// records that were added or removed.
func (v *view) put(t *slot, object *corev1.ConfigMap) (touched []*record) {
	before := t.all
	v.putParts(t, object)
	t.object, t.all = object, map[string]*record{}
	v.slots[t.name] = t
	for entry, text := range data(object) {
		if kept := before[entry]; kept != nil && kept.text == text {
			t.all[entry] = kept
			continue
		}
		r := newRecord(t, entry, text)
		t.all[entry] = r
		v.records[r.key] = append(v.records[r.key], r)
		v.uses[r.part()]++
		touched = append(touched, r)
	}
	for entry, r := range before {
		if t.all[entry] == r {
			continue
		}
		v.remove(r)
		touched = append(touched, r)
	}
	return touched
}

func (v *view) remove(r *record) {
	v.records[r.key] = slices.DeleteFunc(v.records[r.key], func(other *record) bool { return other == r })
	if len(v.records[r.key]) == 0 {
		delete(v.records, r.key)
	}
	if v.uses[r.part()]--; v.uses[r.part()] == 0 {
		delete(v.uses, r.part())
	}
}

// putParts replaces the parts in a slot. One whose name is not that of its bytes is
// damaged and does not count.
func (v *view) putParts(t *slot, object *corev1.ConfigMap) {
	for name := range parts(t.object) {
		p := part{t.node, name}
		delete(v.shared[p], t)
		if len(v.shared[p]) == 0 {
			delete(v.shared, p)
		}
	}
	for name, bytes := range parts(object) {
		p := part{t.node, name}
		if name != partName(bytes) {
			continue
		}
		if v.shared[p] == nil {
			v.shared[p] = map[*slot][]byte{}
		}
		v.shared[p][t] = bytes
	}
}

func partName(bytes []byte) string { return "part-" + digest(string(bytes)) }

func (v *view) bytes(p part) ([]byte, bool) {
	for _, bytes := range v.shared[p] {
		return bytes, true
	}
	return nil, false
}

// intents returns the records of a key that are whole intents: one, unless several
// processes wrote it. Those of another store than that of the node come first, since a
// deployment before this one wrote them; then the order is that of the writes.
func (v *view) intents(key, node string) []*record {
	found := slices.DeleteFunc(slices.Clone(v.records[key]), func(r *record) bool { return r.change })
	slices.SortFunc(found, func(a, b *record) int {
		if own := a.slot.node == node; own != (b.slot.node == node) {
			if own {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.slot.name, b.slot.name))
	})
	return found
}

// changes returns the changes of an intent in the order of their writes. A change that
// cannot be read may be of any intent of its key.
func (v *view) changes(of *record) []*record {
	found := slices.DeleteFunc(slices.Clone(v.records[of.key]), func(r *record) bool {
		return !r.change || r.err == nil && (r.Of != of.ID || r.slot.node != of.slot.node)
	})
	slices.SortFunc(found, func(a, b *record) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// isFor reports whether a change may be of an intent of its key.
func (r *record) isFor(intent *record) bool {
	return !intent.change && (intent.ID == r.Of || intent.err != nil || r.err != nil)
}
