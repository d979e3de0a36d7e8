package local

import "sync"

// account is the space that one volume was promised and the space that it has.
type account struct {
	size  int64 // bytes promised
	thick bool
	// exclusive is how many allocated bytes were not shared when last observed.
	// Only the other bytes can still need new blocks, since a write to a shared
	// block allocates a new one.
	exclusive int64
	mayShare  bool // whether exclusive must be observed by reading the extents
}

// ledger adds up the bytes that the volumes of a pool may still allocate, their needs.
// Snapshots are not in it: their blocks are allocated already and never written again.
//
// The space that can be promised is the filesystem's free space minus the needs. That
// difference does not change when a volume writes or discards: its need changes by as
// much as the free space. Needs are observed now and then and are stale in between;
// estimate explains why that is safe.
type ledger struct {
	overcommit float64
	mapShare   int64 // a byte of the filesystem's own maps for so many of data

	mu       sync.Mutex
	accounts map[string]account
	pending  map[string]int64 // needs of volumes that are being created or expanded
	needs    int64            // of accounts and pending together
	// promised free room at the last observation, less later promises.
	free int64
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

func (l *ledger) set(id string, a account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(id, a)
}

func (l *ledger) put(id string, a account) {
	l.needs -= l.needOf(id)
	l.accounts[id] = a
	l.needs += l.need(a)
}

func (l *ledger) needOf(id string) int64 {
	if a, ok := l.accounts[id]; ok {
		return l.need(a)
	}
	return 0
}

func (l *ledger) get(id string) (account, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[id]
	return a, ok
}

func (l *ledger) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.needs -= l.needOf(id)
	delete(l.accounts, id)
}

// estimate returns how many bytes can still be promised when the filesystem has so
// many available. It is the smaller of two figures. The available bytes minus the
// needs last observed are too high after volumes discarded blocks, and right
// otherwise. The figure of the last observation minus later promises is too high after
// another program filled the filesystem, and right otherwise.
func (l *ledger) estimate(available int64) int64 {
	return min(l.free, available-l.needs)
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
	l.free -= bytes
	return free, true
}

// release ends a promise: its bytes are allocated, or in an account, or
// given up.
func (l *ledger) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.needs -= l.pending[id]
	delete(l.pending, id)
}

// observed stores the measured accounts, as far as they still exist, and starts a new
// estimate.
func (l *ledger) observed(measured map[string]account, available int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range measured {
		if have, ok := l.accounts[id]; ok {
			have.exclusive, have.mayShare = a.exclusive, a.mayShare
			l.put(id, have)
		}
	}
	l.free = available - l.needs
}

func (l *ledger) snapshotOfAccounts() map[string]account {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]account, len(l.accounts))
	for id, a := range l.accounts {
		all[id] = a
	}
	return all
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
