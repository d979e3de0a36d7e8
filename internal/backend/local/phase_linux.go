package local

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// phase is how far the start of a pool has come. A pool whose filesystem failed
// is served without its files, so that volumes can be unmounted; one on
// a read-only filesystem is read only. Both advance when the cause is gone.
type phase struct {
	attempts  attempts
	opened    atomic.Bool
	recovered atomic.Bool
	failure   atomic.Pointer[error] // why the pool is not open
}

// usable is ErrUnavailable, with the cause, while the pool is not open.
func (p *Pool) usable() error {
	if p.phase.opened.Load() {
		return nil
	}
	cause := "it is not open"
	if failure := p.phase.failure.Load(); failure != nil {
		cause = (*failure).Error() // in words only: its class is not that of the call
	}
	return fmt.Errorf("%w: pool %s: %s", backend.ErrUnavailable, p.options.Pool, cause)
}

// ready is nil when the pool is open and recovered, which it tries to reach.
// ErrUnavailable: the filesystem failed or is read-only, or another call tries to
// reach it. The attempt continues when ctx ends.
func (p *Pool) ready(ctx context.Context) error {
	if p.phase.recovered.Load() {
		return nil
	}
	answer, err := p.phase.attempts.begin(ctx, p.advance)
	if err != nil {
		return fmt.Errorf("%w (pool %s)", err, p.options.Pool)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var (
	errBeingOpened = fmt.Errorf("%w: the pool is being opened again; repeat the call later", backend.ErrUnavailable)
	errClosed      = fmt.Errorf("%w: the driver is ending and has closed the pool", backend.ErrUnavailable)
)

// advance opens the pool if it failed, and recovers it if that was not possible.
func (p *Pool) advance(ctx context.Context) error {
	if p.phase.recovered.Load() {
		return nil
	}
	if !p.phase.opened.Load() {
		if err := p.reopen(ctx); err != nil {
			return p.usable()
		}
	}
	if p.phase.recovered.Load() {
		return nil
	}
	if err := p.refuseReadOnly(); err != nil {
		return err
	}
	if err := p.startWritable(ctx); err != nil {
		return fmt.Errorf("recover pool %s: %w", p.options.Pool, classify(err))
	}
	p.log.Info("the pool can be written to and was recovered")
	return nil
}

func (p *Pool) reopen(ctx context.Context) error {
	err := p.open(ctx)
	if err != nil {
		p.setFailure(err)
		return errors.Join(err, p.closeFiles())
	}
	p.log.Info("the pool is open again")
	return nil
}

func (p *Pool) setFailure(err error) {
	err = classify(err)
	p.phase.failure.Store(&err)
}

// stateOf reads the room of the pool's filesystem and whether it takes writes.
// The flag of statfs(2) does not show an ext4 that stopped writes after an error
// or a shutdown.
func (p *Pool) stateOf() (room, error) {
	now, err := roomOf(p.top)
	if err != nil || now.readOnly {
		return now, err
	}
	now.readOnly, err = mount.StoppedWrites(p.top)
	return now, err
}

// refuseReadOnly is ErrUnavailable while the filesystem takes no writes.
func (p *Pool) refuseReadOnly() error {
	now, err := p.stateOf()
	if err != nil {
		return classify(err)
	}
	if now.readOnly {
		return p.readOnlyError()
	}
	return nil
}

func (p *Pool) readOnlyError() error {
	return fmt.Errorf("%w: see the kernel log, then mount the filesystem of %s read-write", errReadOnly, p.options.Pool)
}

var errReadOnly = fmt.Errorf("%w: the filesystem of the pool is read-only", backend.ErrUnavailable)
