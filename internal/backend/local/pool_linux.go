package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

const (
	poolFile       = "pool.json"
	lockFile       = "lock"
	controllerLock = "lock.controller"
	nodeLock       = "lock.node"
)

// Pool is an open pool. It implements both halves of the backend, with all the
// optional interfaces but attachment.
type Pool struct {
	options  Options
	root     *os.Root
	top      *os.File // the pool directory, for statfs and the like
	identity poolRecord
	topology backend.Topology
	locks    []*os.File
	log      *slog.Logger
	points   *failpoint.Set

	phase      phase
	unresolved unresolved
	inline     inlineFailures
	renames    unsynced

	reflink     atomic.Bool // files can share blocks
	copyOnWrite bool        // files need a flag to be overwritten in place (btrfs)
	reserved    int64
	saveEvery   int64 // bytes between two records of a copy's progress
	// allocateEvery is how many bytes are allocated at a time.
	allocateEvery int64

	index  index
	ledger *ledger
	loops  *blockdev.LoopIndex
	// discarded is when something was last deleted, in Unix nanoseconds.
	discarded atomic.Int64
	warned    sync.Map // volumes whose lack of direct I/O was logged

	foreign      foreign
	housekeeping housekeeping
	measurements measurements
}

// poolRecord identifies a pool, apart from the node that has it.
type poolRecord struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	NodeID  string    `json:"nodeID"`
	Created time.Time `json:"created"`
}

// Controller is the half that makes and changes volumes.
func (p *Pool) Controller() backend.Controller { return p }

// Node is the half that gives volumes out as devices.
func (p *Pool) Node() backend.Node { return p }

// Traits of the backend.
func (p *Pool) Traits() backend.Traits { return traits() }

// Open opens a pool or makes a new one, takes its locks and completes or undoes the
// operations that a crash interrupted. ErrInUse when another process has the same half
// of the pool; ErrPrecondition when the directory is not a pool of this node;
// ErrUnavailable when the filesystem is missing.
//
// A pool whose filesystem fails, or whose identity is damaged, is returned too:
// its devices can be listed and closed, everything else is ErrUnavailable, and
// it opens when the cause is gone.
func Open(ctx context.Context, options Options) (*Pool, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if options.Pool, err = filepath.Abs(options.Pool); err != nil {
		return nil, err
	}
	p := &Pool{
		options: options, log: options.Logger.With("component", "local", "pool", options.Pool),
		points: options.Failpoints, ledger: newLedger(options.Overcommit),
		topology: backend.Topology{TopologyKey: options.NodeID}, saveEvery: saveEvery,
		allocateEvery: allocateEvery,
		housekeeping:  newHousekeeping(), measurements: newMeasurements(),
	}
	p.index.reset()
	var unsubscribed error
	if p.loops, unsubscribed = blockdev.NewLoopIndex(); unsubscribed != nil {
		p.log.Warn("events of loop devices do not arrive: each search for a volume's device reads all of them",
			"error", unsubscribed)
	}
	if err := p.open(ctx); err != nil && hasFailed(err) && ctx.Err() == nil {
		p.setFailure(err)
		p.log.Error("the pool cannot be used: until it is repaired, devices can only be closed",
			"error", errors.Join(err, p.closeFiles()))
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("open pool %s: %w", options.Pool, classify(err)), p.Close())
	}
	p.startHousekeeping(ctx)
	p.startMeasurements(ctx)
	return p, nil
}

func (p *Pool) open(ctx context.Context) error {
	if err := p.openDirectory(ctx); err != nil {
		return err
	}
	now, err := p.stateOf()
	if err != nil {
		return err
	}
	p.copyOnWrite = now.magic == unix.BTRFS_SUPER_MAGIC
	p.reserved = p.reserveOf(now.total)
	if p.copyOnWrite {
		p.ledger.mapShare = mapShareBtrfs
		p.reserved += btrfsChunks(now.total)
	}
	if err := p.initialise(ctx, now.readOnly); err != nil {
		return err
	}
	if err := p.lockRole(now.readOnly); err != nil {
		return err
	}
	if now.readOnly {
		p.log.Error("the pool's filesystem is read-only: nothing can be created, changed or cleaned up")
		p.reflink.Store(p.mayReflink(now.magic))
		p.load()
		p.phase.opened.Store(true)
		return nil
	}
	if err := p.startWritable(ctx); err != nil {
		return err
	}
	p.phase.opened.Store(true)
	return nil
}

// startWritable is the part of the start that writes. What an earlier process
// renamed without an fsync is made durable before it is reported as done.
func (p *Pool) startWritable(ctx context.Context) error {
	if err := unix.Syncfs(descriptor(p.top)); err != nil {
		return fmt.Errorf("sync the filesystem of %s: %w", p.options.Pool, err)
	}
	reflink, err := p.probeReflink()
	if isFull(err) {
		// Deleting something must be possible now more than ever.
		p.log.Error("the pool is full; delete volumes or snapshots, or enlarge it", "error", err)
		now, statErr := roomOf(p.top)
		reflink, err = p.mayReflink(now.magic), statErr
	}
	if err != nil {
		return err
	}
	p.reflink.Store(reflink)
	if err := p.recover(ctx); err != nil {
		return err
	}
	p.phase.recovered.Store(true)
	return nil
}

func (p *Pool) reserveOf(total int64) int64 {
	if p.options.Reserve > 0 {
		return p.options.Reserve
	}
	return min(max(total/64, 16*mebibyte), gibibyte)
}

// btrfsChunks is the room in bytes that a btrfs may set aside for metadata beyond its
// need: it takes room from data in chunks, and keeps each of them twice
// (fs/btrfs/volumes.c, init_alloc_chunk_ctl_policy_regular).
func btrfsChunks(total int64) int64 {
	const copies, large = 2, 50 * gibibyte
	chunk := int64(256 * mebibyte)
	if total > large {
		chunk = gibibyte
	}
	return copies * min(chunk, total/10)
}

// discards reports whether blocks discarded on a volume's device become free in the
// pool. A btrfs frees an extent only when none of its blocks is in use: a hole does not
// reserve room for later writes, so that a promise to fill the volume would fail.
func (p *Pool) discards(record volumeRecord) bool {
	return !record.thick() && (!p.copyOnWrite || p.options.Overcommit > 1)
}

func (p *Pool) openDirectory(ctx context.Context) error {
	directory := p.options.Pool
	if err := p.makeDirectory(directory); err != nil {
		return err
	}
	if p.options.PoolImage != nil {
		if err := p.mountImage(ctx, directory); err != nil {
			return fmt.Errorf("pool image %s: %w", p.options.PoolImage.Path, err)
		}
	}
	if err := errors.Join(p.checkMounted(directory), p.checkPresent(directory)); err != nil {
		return err
	}
	var err error
	if p.root, err = os.OpenRoot(directory); err != nil {
		return err
	}
	p.top, err = p.root.Open(".")
	return err
}

// makeDirectory makes the directory of a pool, unless the pool failed before: a
// new one would hide it.
func (p *Pool) makeDirectory(directory string) error {
	_, err := os.Stat(directory)
	if p.reopening() || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(directory, directoryMode)
}

// reopening reports whether the pool failed and is opened again.
func (p *Pool) reopening() bool { return p.phase.failure.Load() != nil }

// checkPresent is ErrUnavailable where a pool that failed should be and is not,
// since its filesystem is not mounted.
func (p *Pool) checkPresent(directory string) error {
	if !p.reopening() {
		return nil
	}
	for _, name := range []string{poolFile, volumesDir} {
		if _, err := os.Lstat(filepath.Join(directory, name)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%w: %s has no pool: repair its filesystem and mount it there", backend.ErrUnavailable, directory)
}

// checkMounted compares the device numbers of the directory and its parent,
// which differ exactly at a mount of another filesystem.
func (p *Pool) checkMounted(directory string) error {
	if !p.options.RequireMount {
		return nil
	}
	var own, parent unix.Stat_t
	if err := errors.Join(unix.Stat(directory, &own), unix.Stat(filepath.Dir(directory), &parent)); err != nil {
		return err
	}
	if own.Dev == parent.Dev {
		return fmt.Errorf("%w: no filesystem is mounted there; mount it first", backend.ErrUnavailable)
	}
	return nil
}

// initialise makes a new pool of an empty directory, or checks an existing
// one. Two processes that start at once run it one after the other.
func (p *Pool) initialise(ctx context.Context, readOnly bool) error {
	if err := p.checkForeign(); err != nil {
		return err
	}
	lock, err := p.waitFile(ctx, lockFile, readOnly)
	if err != nil {
		return err
	}
	defer unlock(lock)
	data, err := readSmall(p.root, poolFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p.create()
	}
	if errors.Is(err, backend.ErrDataLoss) {
		return p.identityDamaged(err)
	}
	if err != nil {
		return err
	}
	return p.identify(data)
}

// checkForeign refuses a directory that has things other than a pool.
func (p *Pool) checkForeign() error {
	names, err := p.list(".")
	if err != nil || slices.Contains(names, poolFile) {
		return err
	}
	known := []string{lockFile, controllerLock, nodeLock, volumesDir, snapshotsDir, groupsDir, trashDir, "lost+found"}
	for _, name := range names {
		if !slices.Contains(known, name) && !durable.IsTemp(name) {
			return fmt.Errorf("%w: the directory is not a pool and contains other things, such as %q; give an empty one",
				backend.ErrPrecondition, name)
		}
	}
	for _, dir := range []string{volumesDir, snapshotsDir, groupsDir} {
		if entries, err := p.list(dir); err == nil && len(entries) > 0 && !p.options.Adopt {
			return fmt.Errorf("%w: it is missing, yet there are entries in %s", errIdentity, dir)
		}
	}
	return nil
}

// create writes pool.json last: without it there is no pool.
func (p *Pool) create() error {
	for _, dir := range []string{volumesDir, snapshotsDir, groupsDir, trashDir} {
		if err := durable.Mkdir(p.root, dir, directoryMode); err != nil {
			return err
		}
	}
	if err := p.points.Hit("local/open/directories"); err != nil {
		return err
	}
	p.identity = poolRecord{Version: recordVersion, ID: newPoolID(), NodeID: p.options.NodeID, Created: time.Now().UTC()}
	p.log.Info("new pool", "id", p.identity.ID)
	return p.saveIdentity()
}

func newPoolID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return hex.EncodeToString(id[:])
}

func (p *Pool) saveIdentity() error {
	data, err := json.MarshalIndent(p.identity, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(p.root, poolFile, append(data, '\n'), fileMode)
}

func (p *Pool) identify(data []byte) error {
	var identity poolRecord
	if err := json.Unmarshal(data, &identity); err != nil {
		return p.identityDamaged(err)
	}
	if identity.Version < 1 || identity.ID == "" || identity.NodeID == "" {
		return p.identityDamaged(fmt.Errorf("version %d, ID %q, node ID %q", identity.Version, identity.ID, identity.NodeID))
	}
	p.identity = identity
	switch {
	case p.identity.Version > recordVersion:
		return fmt.Errorf("%w: %s has version %d, this Holdfast knows up to %d; use the newer one",
			backend.ErrPrecondition, poolFile, p.identity.Version, recordVersion)
	case p.identity.NodeID == p.options.NodeID:
		return nil
	case !p.options.Adopt:
		return fmt.Errorf("%w: the pool belongs to node %q and this node is %q; if this machine replaces that one, start "+
			"once with --adopt-pool", backend.ErrPrecondition, p.identity.NodeID, p.options.NodeID)
	}
	p.log.Warn("adopting the pool of another node",
		"id", p.identity.ID, "was", p.identity.NodeID, "now", p.options.NodeID)
	p.identity.NodeID = p.options.NodeID
	return p.saveIdentity()
}

// identityDamaged rewrites pool.json when the administrator asked to adopt the
// pool; no other file in the pool depends on its content.
func (p *Pool) identityDamaged(cause error) error {
	if !p.options.Adopt {
		return fmt.Errorf("%w: %w", errIdentity, cause)
	}
	p.log.Warn("the identity of the pool is damaged and is rewritten", "error", cause)
	p.identity = poolRecord{Version: recordVersion, ID: newPoolID(), NodeID: p.options.NodeID, Created: time.Now().UTC()}
	return p.saveIdentity()
}

// probeReflink finds out by doing it.
func (p *Pool) probeReflink() (bool, error) {
	from, err := p.scratch()
	if err != nil {
		return false, err
	}
	defer p.dropScratch(from)
	to, err := p.scratch()
	if err != nil {
		return false, err
	}
	defer p.dropScratch(to)
	if _, err := from.WriteAt(make([]byte, 4096), 0); err != nil {
		return false, err
	}
	err = clone(to, from)
	if cannotClone(err) {
		return false, nil
	}
	return err == nil, err
}

// mayReflink guesses by the filesystem, because it cannot try: xfs is made
// with reflink by default (mkfs.xfs(8)).
func (p *Pool) mayReflink(magic int64) bool { return p.copyOnWrite || magic == unix.XFS_SUPER_MAGIC }

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// scratch is a file that a crash leaves to the trash sweep.
func (p *Pool) scratch() (*os.File, error) {
	return p.root.OpenFile(path.Join(trashDir, "scratch."+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
}

func (p *Pool) dropScratch(f *os.File) {
	_ = p.root.Remove(path.Join(trashDir, filepath.Base(f.Name())))
	_ = f.Close()
}

// Close releases the locks. Devices stay as they are: workloads use them.
func (p *Pool) Close() error {
	p.stopHousekeeping()
	p.stopMeasurements()
	p.phase.attempts.close()
	return errors.Join(p.loops.Close(), p.closeFiles())
}

func (p *Pool) closeFiles() error {
	var failed []error
	for _, lock := range p.locks {
		failed = append(failed, unix.Flock(descriptor(lock), unix.LOCK_UN), lock.Close())
	}
	p.locks = nil
	if p.top != nil {
		failed = append(failed, p.top.Close())
	}
	if p.root != nil {
		failed = append(failed, p.root.Close())
	}
	p.top, p.root = nil, nil
	return errors.Join(failed...)
}

// Probe reports whether the pool can be worked with now.
func (p *Pool) Probe(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.ready(ctx); err != nil {
		return err
	}
	if err := p.refuseReadOnly(); err != nil {
		return err
	}
	if _, err := p.root.Stat(poolFile); err != nil {
		return fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.options.Pool, err)
	}
	return nil
}

// NodeInfo says who this machine is.
func (p *Pool) NodeInfo(context.Context) (backend.NodeInfo, error) {
	return backend.NodeInfo{ID: p.options.NodeID, Topology: maps.Clone(p.topology)}, nil
}
