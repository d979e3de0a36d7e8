package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// admit reserves room for a new entry. While there is ample room the
// figures at hand decide, so that creation costs the same however many volumes
// there are; when it seems short, everything is observed again.
func (p *Pool) admit(ctx context.Context, id string, bytes int64) error {
	const ample = 0.5
	now, err := roomOf(p.top)
	if err != nil {
		return err
	}
	// With another process the figures at hand may lack its promises.
	if p.options.Role == RoleAll {
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

// observe measures the blocks of every volume and returns the room of the pool without
// the reserve.
func (p *Pool) observe(ctx context.Context) (available int64, err error) {
	if err := p.refreshForeign(); err != nil {
		return 0, err
	}
	accounts := p.ledger.snapshotOfAccounts()
	for id, a := range accounts {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		measured, err := p.measure(id, a)
		if errors.Is(err, backend.ErrDataLoss) {
			delete(accounts, id) // deleted meanwhile, or missing, which health reports
			continue
		}
		if err != nil { // its blocks cannot be counted, so it may ask for all of them
			p.log.Warn("the blocks of a volume cannot be counted", "volume", id, "error", err)
			measured = account{mayShare: p.reflink.Load()}
		}
		accounts[id] = measured
	}
	now, err := roomOf(p.top)
	if err != nil {
		return 0, err
	}
	available = now.available - p.reserved
	p.ledger.observed(accounts, available)
	return available, nil
}

func (p *Pool) measure(id string, a account) (account, error) {
	data, err := p.openData(volumePath(id), os.O_RDONLY)
	if err != nil {
		return a, err
	}
	defer func() { _ = data.Close() }()
	if a.exclusive, err = allocated(data); err != nil || !a.mayShare {
		return a, err
	}
	shared, err := sharedExtents(data)
	if err != nil {
		return a, err
	}
	// Blocks become shared by a clone of ours only, which says so here.
	a.mayShare = len(shared) > 0
	for _, e := range shared {
		a.exclusive -= e.length
	}
	a.exclusive = max(0, a.exclusive)
	return a, nil
}

// refreshForeign reads the entries that the other half, when it is another process, has
// made and removed.
func (p *Pool) refreshForeign() error {
	if p.options.Role == RoleAll {
		return nil
	}
	names, err := p.list(volumesDir)
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, id := range names {
		present[id] = true
		if _, known, _ := p.index.volume(id); !known && !p.owns(id) && isVolumeID(id) {
			if err := p.loadForeign(id); err != nil {
				return err
			}
		}
	}
	for _, record := range page(&p.index, func(x *index) map[string]volumeRecord { return x.volumes },
		func(r volumeRecord) bool { return !p.owns(r.ID) && !present[r.ID] }, "", 0) {
		p.index.forget(record.ID)
		p.ledger.remove(record.ID)
	}
	return nil
}

func (p *Pool) loadForeign(id string) error {
	record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile)
	if errors.Is(err, fs.ErrNotExist) || record.State == creating {
		return nil
	}
	if err != nil {
		p.log.Warn("a record of the other half cannot be used", "id", id, "error", err)
		return nil
	}
	p.enterVolume(record, p.unmeasured(record))
	return nil
}

// Capacity returns the sizes that CreateVolume would accept now. Thin volumes count
// with their size divided by the overcommit ratio, thick ones fully, and snapshots with
// the room that writes to their volumes may still need.
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
	if now, err := p.stateOf(); err != nil || now.readOnly {
		return backend.Capacity{}, classify(err)
	}
	if err := p.ready(ctx); err != nil {
		return backend.Capacity{}, err
	}
	if _, err := p.root.Stat(poolFile); err != nil { // an xfs that was shut down has room and takes no writes
		return backend.Capacity{}, classify(err)
	}
	if err := errors.Join(p.resolveAll(ctx), p.dropAbandoned(p.stale)); err != nil {
		p.log.Warn("deleted or abandoned entries still occupy blocks", "error", err)
	}
	available, err := p.observe(ctx)
	if err != nil {
		return backend.Capacity{}, classify(err)
	}
	most := p.ledger.largest(available, provisioning == thick)
	return backend.Capacity{
		Available: most, MaximumVolumeSize: min(most, maximumSize), MinimumVolumeSize: min(most, allocationUnit),
	}, nil
}
