package local

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// admit reserves room for a new entry. While there is ample room the
// figures at hand decide, so that creation costs the same however many volumes
// there are; when it seems short, or was not measured for a minute, everything is observed
// again.
func (p *Pool) admit(ctx context.Context, id string, bytes int64) error {
	const ample = 0.5
	now, err := roomOf(p.top)
	if err != nil {
		return err
	}
	// With another process the figures at hand may lack its promises.
	if p.options.Role == RoleAll && !p.measurements.isOld() {
		if _, ok := p.ledger.promise(id, bytes, now.available-p.reserved, ample); ok {
			return nil
		}
	}
	free, ok, err := p.promiseObserved(ctx, id, bytes)
	for try := 0; err == nil && !ok && try < p.freeingRetries(); try++ {
		free, ok, err = p.promiseAfterSync(ctx, id, bytes)
	}
	if err == nil && !ok {
		free, ok, err = p.promiseReclaimed(ctx, id, bytes)
	}
	if err == nil && !ok {
		err = fmt.Errorf("%w: %d bytes are needed and the pool can promise %d more; delete volumes or snapshots, enlarge "+
			"the pool, or raise the overcommit ratio", backend.ErrNoSpace, bytes, max(0, free))
	}
	return err
}

// Filesystems free the blocks of a deleted file behind its back: btrfs when it
// commits, xfs when it inactivates the inode, and until then a deleted snapshot still
// counts as sharing the blocks of its source.
const (
	freeingTime  = 30 * time.Second
	freeingPause = 50 * time.Millisecond
	freeingMost  = 20
)

// freeingRetries bounds the checks after a refusal: one, and more for a while after a
// deletion, until its blocks are free.
func (p *Pool) freeingRetries() int {
	if time.Since(time.Unix(0, p.discarded.Load())) < freeingTime {
		return freeingMost
	}
	return 1
}

func (p *Pool) promiseAfterSync(ctx context.Context, id string, bytes int64) (free int64, ok bool, err error) {
	if err := unix.Syncfs(descriptor(p.top)); err != nil {
		return 0, false, err
	}
	if err := concurrency.Sleep(ctx, freeingPause); err != nil {
		return 0, false, err
	}
	return p.promiseObserved(ctx, id, bytes)
}

func (p *Pool) promiseObserved(ctx context.Context, id string, bytes int64) (free int64, ok bool, err error) {
	available, err := p.observe(ctx)
	if err != nil {
		return 0, false, err
	}
	free, ok = p.ledger.promise(id, bytes, available, 1)
	return free, ok, nil
}

// promiseReclaimed is the last resort: it removes deleted and abandoned entries that
// still occupy blocks.
func (p *Pool) promiseReclaimed(ctx context.Context, id string, bytes int64) (free int64, ok bool, err error) {
	others := func(entry string) bool { return path.Base(entry) != id }
	if err := errors.Join(p.resolveAll(ctx), p.emptyTrash(), p.dropAbandoned(others)); err != nil {
		p.log.Warn("deleted or abandoned entries still occupy blocks", "error", err)
	}
	return p.promiseAfterSync(ctx, id, bytes)
}

// Capacity returns the sizes that CreateVolume would accept now. Thin volumes count
// with their size divided by the overcommit ratio, thick ones fully, and snapshots with
// the room that writes to their volumes may still need.
//
// It reads the ledger and no volume. Writes of volumes since the last measurement make
// the answer too small (see ledger.estimate). An answer that differs by more than a little,
// or rests on an old measurement, is followed by another one in the background.
func (p *Pool) Capacity(
	ctx context.Context, parameters map[string]string, at backend.Topology,
) (backend.Capacity, error) {
	if node, ok := at[TopologyKey]; ok && node != p.options.NodeID {
		return backend.Capacity{}, nil
	}
	provisioning, err := provisioningOf(parameters, nil)
	if err != nil {
		return backend.Capacity{}, err
	}
	if err := p.usable(); err != nil {
		return backend.Capacity{}, err
	}
	now, err := p.stateOf()
	if err != nil || now.readOnly {
		return backend.Capacity{}, classify(err)
	}
	if err := p.ready(ctx); err != nil {
		return backend.Capacity{}, err
	}
	if _, err := p.root.Stat(poolFile); err != nil { // an xfs that was shut down has room and takes no writes
		return backend.Capacity{}, classify(err)
	}
	if err := p.refreshForeign(); err != nil {
		return backend.Capacity{}, classify(err)
	}
	available := now.available - p.reserved
	if p.drifted(now) || p.measurements.isOld() {
		p.measureSoon()
	}
	most := p.ledger.largest(available, provisioning == thick)
	return backend.Capacity{
		Available: most, MaximumVolumeSize: min(most, maximumSize), MinimumVolumeSize: min(most, allocationUnit),
	}, nil
}
