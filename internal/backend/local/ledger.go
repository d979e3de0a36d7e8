package local

import (
	"maps"
	"sync"
)

// account is the space that one volume was promised and the space that it has.
type account struct {
	size  int64 // bytes promised
	thick bool
	// exclusive is how many allocated bytes were not shared when last measured.
	// Only the other bytes can still need new blocks, since a write to a shared
	// block allocates a new one.
	exclusive int64
	// shared are the other allocated bytes, for the metrics.
	shared   int64
	mayShare bool // whether exclusive must be measured by reading the extents
	// version changes whenever the account is entered: a measurement that began before
	// does not replace it.
	version uint64
}

// ledger adds up the bytes that the volumes of a pool may still allocate, their needs.
// Snapshots are not in it: their blocks are allocated already and never written again.
//
// The space that can be promised is the filesystem's free space minus the needs. The
// ledger follows what the pool does by itself: creations, growth, deletions and
// snapshots. It is measured again now and then for what it cannot see: the writes and
// discards of volumes, and other users of the filesystem. estimate explains what may be
// stale in between.
type ledger struct {
	overcommit float64
	mapShare   int64 // a byte of the filesystem's own maps for so many of data

	mu       sync.Mutex
	accounts map[string]account
	pending  map[string]int64 // needs of volumes that are being created or expanded
	needs    int64            // of accounts and pending together
	owned    int64            // exclusive bytes of the accounts
	// room is what all but the volumes leave of the filesystem: the available bytes and
	// the owned ones, when last measured. What volumes write and discard moves bytes from
	// one to the other; a creation, growth or deletion changes neither.
	room    int64
	version uint64
}

func newLedger(overcommit float64) *ledger {
	return &ledger{overcommit: overcommit, mapShare: mapShareExtents, accounts: map[string]account{},
		pending: map[string]int64{}}
}

// Every volume costs a directory, records and the filesystem's own map of the
// blocks. A file that is written in random order, 4 KiB at a time, has one extent
// for each. Extent lists of ext4 and xfs take less than one part in 256 then. A
// btrfs needs items in two trees, which it keeps twice: 84 MiB of 1 GiB were
// measured (Linux 6.18), one part in 12.
const (
	entryCost       = 64 << 10
	mapShareExtents = 256
	mapShareBtrfs   = 11
)

func (l *ledger) withOverhead(bytes int64) int64 { return bytes + bytes/l.mapShare + entryCost }

// withoutOverhead returns the largest n with withOverhead(n) <= bytes.
func (l *ledger) withoutOverhead(bytes int64) int64 {
	n := (bytes - entryCost) / (l.mapShare + 1) * l.mapShare
	return max(0, n)
}

// need returns how many bytes an account may still allocate.
func (l *ledger) need(a account) int64 {
	promised := a.size
	if !a.thick {
		promised = int64(float64(a.size) / l.overcommit)
	}
	if missing := promised - a.exclusive; missing > 0 {
		return l.withOverhead(missing)
	}
	return 0
}

// set enters an account. A promise for it ends: the account has its bytes.
func (l *ledger) set(id string, a account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.needs -= l.pending[id]
	delete(l.pending, id)
	l.enter(id, a)
}

// enter puts an account that no measurement which began before may replace.
func (l *ledger) enter(id string, a account) {
	l.version++
	a.version = l.version
	l.put(id, a)
}

func (l *ledger) put(id string, a account) {
	l.drop(id)
	l.accounts[id] = a
	l.needs += l.need(a)
	l.owned += a.exclusive
}

// drop removes an account, if there is one.
func (l *ledger) drop(id string) {
	if a, ok := l.accounts[id]; ok {
		l.needs -= l.need(a)
		l.owned -= a.exclusive
		delete(l.accounts, id)
	}
}

// get returns the account of a volume; the zero value if it has none.
func (l *ledger) get(id string) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accounts[id]
}

func (l *ledger) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(id)
}

// estimate returns how many bytes can still be promised when the filesystem has so
// many available. Stale are the needs, by what volumes wrote and discarded since the
// last measurement. Two figures of the available bytes are compared: the present one,
// and the one that the ledger expects from the last measurement and from what the pool
// did since. The smaller one counts:
//
//   - writes lower the present one, and the estimate with it until the next measurement;
//   - discards raise it, and the expected one counts, which is right;
//   - another program that fills the filesystem lowers it, which is right.
//
// Only when volumes discard and others fill the filesystem at the same time is the
// estimate too high, by the smaller of both amounts. What needs exact room is admitted
// by a measurement, and an estimate only ever admits a part of what it says.
func (l *ledger) estimate(available int64) int64 {
	return min(l.room-l.owned, available) - l.needs
}

// drift returns by how many bytes the filesystem differs from what the ledger expects.
func (l *ledger) drift(available int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	difference := available - (l.room - l.owned)
	return max(difference, -difference)
}

// promise books bytes for id if at most the given share of the estimate is
// asked for; a share below 1 leaves room for the estimate being off.
func (l *ledger) promise(id string, bytes, available int64, share float64) (free int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free = l.estimate(available)
	if float64(bytes) > float64(free)*share {
		return free, false
	}
	l.pending[id] += bytes
	l.needs += bytes
	return free, true
}

// release ends a promise that no account replaced, if there is one. used: a copy has its
// bytes, or an operation that failed may have left some. They count until the next
// measurement.
func (l *ledger) release(id string, used bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used {
		l.room -= l.pending[id]
	}
	l.needs -= l.pending[id]
	delete(l.pending, id)
}

func (l *ledger) hasPromised(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.pending[id]
	return ok
}

// share notes that a copy, a snapshot or a clone, has the blocks of a volume, too. The volume
// needs new ones for its writes, for which the copy was promised the room. A clone is promised
// room for its own writes alone, which suffices for both until something else shares these
// blocks: the needs then exceed the promise, and no other promise is made. A thick volume
// keeps its blocks: its copy gets others.
func (l *ledger) share(id, copied string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[id]
	if !ok {
		return
	}
	before := a
	a.mayShare = true
	if !a.thick {
		a.exclusive = 0
	}
	promised := min(l.need(a)-l.need(before), l.pending[copied])
	l.pending[copied] -= promised
	l.needs -= promised
	l.room -= before.exclusive - a.exclusive
	l.enter(id, a)
}

// observed stores the measured accounts, as far as they were not entered anew since, and
// the room.
func (l *ledger) observed(measured map[string]account, available int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range measured {
		l.replace(id, a)
	}
	l.room = available + l.owned
}

// observedOne stores the measured account of one volume.
func (l *ledger) observedOne(id string, a account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(id, a)
}

func (l *ledger) replace(id string, a account) {
	if have, ok := l.accounts[id]; ok && have.version == a.version {
		l.put(id, a)
	}
}

func (l *ledger) snapshotOfAccounts() map[string]account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.accounts)
}

// largest is the largest size in bytes of a volume that can still be promised.
func (l *ledger) largest(available int64, thick bool) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.withoutOverhead(max(0, l.estimate(available)))
	if !thick {
		most = int64(float64(most) * l.overcommit)
	}
	return most / allocationUnit * allocationUnit
}
