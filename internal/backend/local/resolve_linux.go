package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
)

// unresolved are entries on which an operation neither completed nor was undone,
// with the reason. What is on disk decides about them, as at a start: resolve
// completes or removes them before any other operation sees them.
type unresolved struct {
	mu      sync.Mutex
	entries map[string]*failure
}

// failure is why an entry is unresolved. Each has an identity: an entry that was
// resolved meanwhile and failed again has another one.
type failure struct{ why error }

func (u *unresolved) add(entry string, why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.entries == nil {
		u.entries = map[string]*failure{}
	}
	u.entries[entry] = &failure{why}
}

func (u *unresolved) remove(entry string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.entries, entry)
}

// get is nil for an entry that is not unresolved.
func (u *unresolved) get(entry string) *failure {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.entries[entry]
}

func (u *unresolved) has(entry string) bool { return u.get(entry) != nil }

// finish calls done and takes the entry off the list, unless another call did so
// since the failure was read.
func (u *unresolved) finish(entry string, read *failure, done func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.entries[entry] != read {
		return
	}
	done()
	delete(u.entries, entry)
}

func (u *unresolved) all() map[string]error {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[string]error{}
	for entry, failure := range u.entries {
		all[entry] = failure.why
	}
	return all
}

// leaveUnresolved notes that an operation on an entry failed with an unknown
// result, and wakes the housekeeping.
func (p *Pool) leaveUnresolved(entry string, why error) {
	p.unresolved.add(entry, why)
	p.wake()
}

// resolve completes or removes an entry if an operation left it unresolved.
// ErrUnavailable: it could not, and the state of the entry is not known.
func (p *Pool) resolve(ctx context.Context, entry string) error {
	read := p.unresolved.get(entry)
	if read == nil {
		return nil
	}
	lock, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
	if errors.Is(err, backend.ErrNotFound) {
		return p.resolveAbsent(entry, read)
	}
	if errors.Is(err, backend.ErrBusy) {
		return err
	}
	if err != nil {
		return p.resolved(entry, err)
	}
	defer lock.release()
	if !p.unresolved.has(entry) {
		return nil
	}
	return p.resolved(entry, p.resolveLocked(ctx, entry))
}

// resolveAbsent forgets an entry that is not on disk. No lock keeps another call
// from resolving it at the same time and creating it again: what that call entered
// into the index and the ledger stays.
func (p *Pool) resolveAbsent(entry string, read *failure) error {
	if err := p.syncRenames(); err != nil {
		return p.resolved(entry, err)
	}
	p.unresolved.finish(entry, read, func() {
		p.forget(entry)
		p.ledger.release(path.Base(entry), true)
	})
	return nil
}

// resolved takes an entry off the list when err is nil.
func (p *Pool) resolved(entry string, err error) error {
	if err != nil {
		p.unresolved.add(entry, err)
		return fmt.Errorf("%w: an earlier operation on %s failed and its result is not known: %w; the driver retries",
			backend.ErrUnavailable, path.Base(entry), err)
	}
	p.ledger.release(path.Base(entry), true)
	p.unresolved.remove(entry)
	return nil
}

// resolveLocked does for one entry under lock what a start does for all. It syncs the
// entry first, which may be the effect of a call whose fsync failed.
func (p *Pool) resolveLocked(ctx context.Context, entry string) error {
	if err := errors.Join(p.syncRenames(), durable.SyncDir(p.root, path.Dir(entry)), durable.SyncDir(p.root, entry)); err != nil {
		return err
	}
	id := path.Base(entry)
	switch path.Dir(entry) {
	case groupsDir:
		return p.recoverGroup(ctx, id, p.discardPresent)
	case snapshotsDir:
		return p.recoverSnapshot(ctx, id, p.discardPresent)
	}
	return p.recoverVolume(ctx, id, p.discardPresent)
}

func (p *Pool) discardPresent(_ context.Context, entry string) error {
	if err := p.discard(entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.forget(entry)
	return nil
}

// resolveAll resolves every entry, groups before the snapshots in them.
func (p *Pool) resolveAll(ctx context.Context) error {
	var failed []error
	for _, entry := range slices.Sorted(maps.Keys(p.unresolved.all())) { // groups/ sorts before snapshots/
		failed = append(failed, p.resolve(ctx, entry))
	}
	return errors.Join(failed...)
}

// resolveForListing resolves what it can before a listing. An entry that stays unresolved
// is left out of the listing.
func (p *Pool) resolveForListing(ctx context.Context) error {
	if err := p.usable(); err != nil {
		return err
	}
	if err := p.resolveAll(ctx); err != nil {
		p.log.Warn("some entries are not listed", "error", err)
	}
	return ctx.Err()
}

// releaseUnlessUnresolved ends the promise of an operation. The promise of an
// unresolved one stays until the operation is resolved.
func (p *Pool) releaseUnlessUnresolved(entry string) {
	id := path.Base(entry)
	if p.unresolved.has(entry) || !p.ledger.hasPromised(id) {
		return
	}
	_, err := p.root.Lstat(entry)
	undone := errors.Is(err, fs.ErrNotExist)
	p.ledger.release(id, !undone)
	if !undone {
		p.measureSoon()
	}
}
