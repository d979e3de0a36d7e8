package local

import "sync"

// account is what one volume was promised and what it has.
type account struct {
	size  int64 // bytes promised
	thick bool
	// exclusive is how many allocated bytes it shares with nobody, when last
	// observed: only the rest can still ask for new blocks, since a write to a
	// shared block takes a new one.
	exclusive int64
	mayShare  bool // whether exclusive must be observed by reading the extents
}

// ledger adds up what the volumes of a pool may still ask for. Snapshots are
// not in it: what they hold is allocated already and never written again.
//
// What is free to promise is the filesystem's room minus those needs. The sum
// does not change when a volume writes or discards: its need changes by as much
// as the room. Needs are observed now and then and grow stale in between; see
// estimate for why that is safe.
type ledger struct {
	overcommit float64

	mu       sync.Mutex
	accounts map[string]account
	pending  map[string]int64 // needs of what is being made or grown
	needs    int64            // of accounts and pending together
	// promised free room at the last observation, less what was promised since.
	free int64
}

func newLedger(overcommit float64) *ledger {
	return &ledger{overcommit: overcommit, accounts: map[string]account{}, pending: map[string]int64{}}
}

// Every volume costs a directory, records and the filesystem's own map of the
// blocks: checksums of btrfs take one part in 1024, extent lists less.
const (
	entryCost    = 64 << 10
	mapCostShare = 256
)

func withOverhead(bytes int64) int64 { return bytes + bytes/mapCostShare + entryCost }

// withoutOverhead is the largest n with withOverhead(n) <= bytes.
func withoutOverhead(bytes int64) int64 {
	n := (bytes - entryCost) / (mapCostShare + 1) * mapCostShare
	return max(0, n)
}

// need is how many bytes an account may still ask for.
func (l *ledger) need(a account) int64 {
	promised := a.size
	if !a.thick {
		promised = int64(float64(a.size) / l.overcommit)
	}
	if missing := promised - a.exclusive; missing > 0 {
		return withOverhead(missing)
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

// estimate is what can still be promised when the filesystem has so many bytes
// available. Two figures are at hand. Room minus the needs last observed is
// too high after volumes discarded blocks, right otherwise; the figure of the
// last observation minus later promises is too high after somebody else filled
// the filesystem, right otherwise. The smaller is taken.
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

// settle ends a promise: what it was for is allocated, or in an account, or
// given up.
func (l *ledger) settle(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.needs -= l.pending[id]
	delete(l.pending, id)
}

// observed takes in what was measured, for the accounts that still exist, and
// starts the estimate anew.
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
	most := withoutOverhead(max(0, l.estimate(available)))
	if !thick {
		most = int64(float64(most) * l.overcommit)
	}
	return most / allocationUnit * allocationUnit
}
