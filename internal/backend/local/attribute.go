package local

import "github.com/holdfast-csi/holdfast/internal/backend"

// volumeTotals are the sums over the volumes of a pool, in bytes.
type volumeTotals struct {
	promised int64 // their sizes
	// allocated counts a block once for each volume that has it; exclusive counts the
	// blocks that one volume alone has.
	allocated, exclusive int64
}

// totals returns the sums of the accounts as last measured.
func (l *ledger) totals() (sum volumeTotals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		sum.promised += a.size
		sum.allocated += a.exclusive + a.shared
		sum.exclusive += a.exclusive
	}
	return sum
}

// attribute says what uses the used bytes of a pool's filesystem. Blocks are shared, and
// no filesystem counts them by their users in less than a read of all extents: the figures
// are right as long as nothing else fills the filesystem. Blocks that a volume shares with
// a snapshot are the snapshot's, since deleting the volume would not free them. A volume's
// shared blocks beyond those of all snapshots are shared among volumes.
func attribute(used int64, volumes volumeTotals, snapshots, partial, trash int64) backend.PoolUse {
	rest := max(used, 0)
	take := func(most int64) int64 {
		taken := min(max(most, 0), rest)
		rest -= taken
		return taken
	}
	use := backend.PoolUse{Volumes: take(volumes.exclusive), Trash: take(trash), Partial: take(partial)}
	use.Snapshots = take(snapshots)
	use.Volumes += take(volumes.allocated - volumes.exclusive - snapshots)
	use.Other = rest
	return use
}
