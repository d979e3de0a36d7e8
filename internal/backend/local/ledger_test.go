package local

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLedger_whatIsLargestCanBePromised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(rapid.Float64Range(1, 50).Draw(t, "overcommit"))
		available := rapid.Int64Range(0, 1<<50).Draw(t, "available")
		l.observed(nil, available)
		thick := rapid.Bool().Draw(t, "thick")
		size := l.largest(available, thick)
		if size == 0 {
			return
		}
		if _, ok := l.promise("one", l.need(account{size: size, thick: thick}), available, 1); !ok {
			t.Fatalf("%d bytes were reported and are refused", size)
		}
		if _, ok := l.promise("two", l.need(account{size: size + 64*allocationUnit, thick: true}), available, 1); ok {
			t.Fatal("the room was promised twice")
		}
	})
}

func TestLedger_writingAndDiscardingChangeNothing(t *testing.T) {
	l := newLedger(1)
	l.set("one", account{size: 100 * mebibyte})
	l.observed(nil, gibibyte)
	before := l.estimate(gibibyte)
	measureOne(l, "one", 50*mebibyte, gibibyte-50*mebibyte)
	if after := l.estimate(gibibyte - 50*mebibyte); after < before || after > before+mebibyte {
		t.Fatalf("%d before, %d after writing", before, after)
	}
}

func TestLedger_isNotFooledByDiscards(t *testing.T) {
	l := newLedger(1)
	l.set("one", account{size: gibibyte})
	measureOne(l, "one", gibibyte, gibibyte)               // written full
	if free := l.estimate(2 * gibibyte); free > gibibyte { // discarded, not observed yet
		t.Fatalf("%d bytes are free to promise; one GiB of them is the volume's", free)
	}
}

func TestLedger_completesReservations(t *testing.T) {
	l := newLedger(1)
	l.observed(nil, gibibyte)
	if _, ok := l.promise("one", 900*mebibyte, gibibyte, 1); !ok {
		t.Fatal("refused")
	}
	if _, ok := l.promise("two", 900*mebibyte, gibibyte, 1); ok {
		t.Fatal("promised twice")
	}
	l.release("one", true)
	if _, ok := l.promise("two", 900*mebibyte, gibibyte, 1); ok {
		t.Fatal("what a failed operation may have left was promised")
	}
	l.observed(nil, gibibyte)
	if _, ok := l.promise("two", 900*mebibyte, gibibyte, 1); !ok {
		t.Fatal("refused after the first was given up")
	}
}

// measureOne stores a measurement of one volume and of the available bytes.
func measureOne(l *ledger, id string, exclusive, available int64) {
	measured := l.snapshotOfAccounts()
	a := measured[id]
	a.exclusive = exclusive
	measured[id] = a
	l.observed(measured, available)
}

// A scan reads the blocks of a volume, then a snapshot shares them, then the scan ends.
func TestLedger_aMeasurementDoesNotUndoWhatWasEnteredMeanwhile(t *testing.T) {
	l := newLedger(1)
	l.set("one", account{size: gibibyte})
	measureOne(l, "one", gibibyte, gibibyte)
	scan := l.snapshotOfAccounts()
	if _, ok := l.promise("snapshot", l.need(account{size: gibibyte}), 2*gibibyte, 1); ok {
		t.Fatal("more was promised than there is")
	}
	l.share("one", "snapshot")
	l.observed(scan, gibibyte)
	if a := l.get("one"); a.exclusive != 0 || !a.mayShare {
		t.Fatalf("the account is %+v; its blocks are shared", a)
	}
}

// simulated is a filesystem with the volumes of a pool and other users.
type simulated struct {
	*rapid.T
	l       *ledger
	total   int64
	others  int64 // bytes of other users, and of snapshots
	volumes map[string]*simulatedVolume
	// Since the last measurement:
	discarded, filled int64 // bytes that volumes discarded, and that others took
	hidden            int64 // bytes that became free, or a volume's own, unseen by the ledger
	written           int64
}

type simulatedVolume struct {
	account
	shared int64 // allocated bytes that snapshots have, too
}

func (s *simulated) available() int64 {
	available := s.total - s.others
	for _, v := range s.volumes {
		available -= v.exclusive + v.shared
	}
	return available
}

// free is what can be promised, by the facts.
func (s *simulated) free() int64 {
	free := s.available()
	for _, v := range s.volumes {
		free -= s.l.need(account{size: v.size, thick: v.thick, exclusive: v.exclusive})
	}
	return free
}

func (s *simulated) measure() {
	measured := s.l.snapshotOfAccounts()
	for id, a := range measured {
		a.exclusive, a.mayShare = s.volumes[id].exclusive, s.volumes[id].shared > 0
		measured[id] = a
	}
	s.l.observed(measured, s.available())
	s.discarded, s.filled, s.hidden, s.written = 0, 0, 0, 0
}

func (s *simulated) draw() (string, *simulatedVolume) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(s.T, "volume")
	return id, s.volumes[id]
}

func (s *simulated) bytes(most int64) int64 {
	return rapid.Int64Range(0, max(0, most)/mebibyte).Draw(s.T, "MiB") * mebibyte
}

// admit promises bytes as Pool.admit does: by the estimate if it is ample, else measured.
func (s *simulated) admit(id string, bytes int64) bool {
	if _, ok := s.l.promise(id, bytes, s.available(), 0.5); ok {
		return true
	}
	s.measure()
	_, ok := s.l.promise(id, bytes, s.available(), 1)
	return ok
}

func (s *simulated) create() {
	id, have := s.draw()
	a := account{size: mebibyte + s.bytes(s.total/2), thick: rapid.Bool().Draw(s.T, "thick")}
	if have != nil || !s.admit(id, s.l.need(a)) {
		return
	}
	if rapid.Bool().Draw(s.T, "fails") {
		used := rapid.Bool().Draw(s.T, "leaves something")
		if used {
			s.hidden += s.l.need(a)
		}
		s.l.release(id, used)
		return
	}
	if a.thick {
		a.exclusive = min(a.size, s.available())
	}
	s.volumes[id] = &simulatedVolume{account: a}
	s.l.set(id, a)
}

func (s *simulated) grow() {
	id, v := s.draw()
	if v == nil {
		return
	}
	more := s.bytes(s.total / 4)
	if !s.admit(id, s.l.need(account{size: more, thick: v.thick})) {
		return
	}
	a := s.l.get(id)
	a.size += more
	a.exclusive = v.exclusive // an expansion measures its volume
	if v.thick {
		a.exclusive += min(more, s.available())
	}
	v.size, v.exclusive = a.size, a.exclusive
	s.l.set(id, a)
}

func (s *simulated) remove() {
	id, v := s.draw()
	if v == nil {
		return
	}
	s.others += v.shared // the snapshots keep them
	delete(s.volumes, id)
	s.l.remove(id)
}

func (s *simulated) write() {
	_, v := s.draw()
	if v == nil {
		return
	}
	bytes := s.bytes(min(v.size-v.exclusive, s.available()))
	v.exclusive += bytes
	s.written += bytes
	if taken := min(v.shared, bytes); taken > 0 { // shared blocks are written anew first
		v.shared -= taken
		s.others += taken
	}
}

func (s *simulated) discard() {
	_, v := s.draw()
	if v == nil || v.thick {
		return
	}
	bytes := s.bytes(v.exclusive)
	v.exclusive -= bytes
	s.discarded += bytes
}

func (s *simulated) snapshot() {
	id, v := s.draw()
	if v == nil || v.thick {
		return
	}
	before := s.l.get(id)
	before.exclusive = v.exclusive
	s.l.observedOne(id, before)
	after := before
	after.exclusive = 0
	if !s.admit("snapshot", s.l.need(after)-s.l.need(before)) {
		return
	}
	s.l.share(id, "snapshot")
	s.l.release("snapshot", true)
	v.shared += v.exclusive
	v.exclusive = 0
}

// unshare deletes the snapshots of a volume.
func (s *simulated) unshare() {
	_, v := s.draw()
	if v == nil {
		return
	}
	v.exclusive += v.shared
	s.hidden += 2 * v.shared
	v.shared = 0
}

func (s *simulated) otherUsers() {
	bytes := s.bytes(s.available()) - s.bytes(s.others)
	s.others += bytes
	s.filled += max(0, bytes)
	s.hidden += max(0, -bytes)
}

// check compares the ledger with the facts. Each volume's overhead may be off by the part
// of it that depends on its blocks.
func (s *simulated) check() {
	estimate, free := s.l.estimate(s.available()), s.free()
	rounding := (s.discarded+s.written+s.hidden)/s.l.mapShare + 16*entryCost
	if most := free + min(s.discarded, s.filled) + rounding; estimate > most {
		s.Fatalf("the ledger promises %d bytes of %d; %d were discarded and %d filled since it was measured",
			estimate, free, s.discarded, s.filled)
	}
	if least := free - s.written - s.discarded - s.hidden - s.filled - rounding; estimate < least {
		s.Fatalf("the ledger promises %d bytes of %d; %d were written since it was measured", estimate, free, s.written)
	}
	if s.discarded+s.filled+s.hidden+s.written == 0 && estimate != free {
		s.Fatalf("the ledger promises %d bytes of %d, and it can know", estimate, free)
	}
}

// Random operations of a pool, its volumes and other users, against the facts.
func TestLedger_agreesWithTheFilesystem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simulated{T: t, l: newLedger(1), total: 4 * gibibyte, volumes: map[string]*simulatedVolume{}}
		s.measure()
		actions := map[string]func(*rapid.T){}
		for name, action := range map[string]func(){
			"create": s.create, "grow": s.grow, "delete": s.remove, "write": s.write, "discard": s.discard,
			"snapshot": s.snapshot, "delete snapshots": s.unshare, "other users": s.otherUsers, "measure": s.measure,
		} {
			actions[name] = func(t *rapid.T) {
				s.T = t
				action()
			}
		}
		actions[""] = func(t *rapid.T) {
			s.T = t
			s.check()
		}
		t.Repeat(actions)
	})
}
