package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// making is a record of something that is made in steps.
type making[T any] interface {
	stored
	name() string
	same(T) bool
}

// begin takes the lock of a new entry and makes the intent durable. It continues an
// interrupted call with the same arguments, and first removes the entry of one with
// other arguments. A call that fails leaves the entry unresolved, unless another one
// kept the lock.
func begin[T making[T]](ctx context.Context, p *Pool, entry, file string, desired T) (*entryLock, T, error) {
	lock, record, err := beginOnce(ctx, p, entry, file, desired)
	if errors.Is(err, errReplaced) {
		lock, record, err = beginOnce(ctx, p, entry, file, desired)
	}
	if err != nil && !errors.Is(err, backend.ErrBusy) && !endedWaiting(ctx, err) {
		p.leaveUnresolved(entry, err)
	}
	return lock, record, err
}

// endedWaiting reports whether the context ended while beginOnce waited for the lock;
// nothing else in it returns the context's error.
func endedWaiting(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// errReplaced: another call's entry was removed; begin again.
var errReplaced = fmt.Errorf("%w: the entry was just removed", backend.ErrBusy)

func beginOnce[T making[T]](ctx context.Context, p *Pool, entry, file string, desired T) (*entryLock, T, error) {
	var none T
	lock, err := p.lockNew(ctx, entry)
	if err != nil {
		return nil, none, err
	}
	if err := p.points.Hit("local/create/directory"); err != nil {
		lock.release()
		return nil, none, err
	}
	have, err := readRecord[T](p.root, entry, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return intend(p, lock, file, desired)
	case err == nil && have.name() != desired.name():
		err = checkSame(have, desired)
	case err == nil && have.head().State == creating && have.same(desired):
		return lock, have, nil
	case err == nil && have.head().State == creating:
		if err = p.discard(entry); err == nil {
			err = errReplaced
		}
	case err == nil:
		err = fmt.Errorf("%w: %s is %s on disk and not known; repeat later",
			backend.ErrUnavailable, desired.head().ID, have.head().State)
	}
	lock.release()
	return nil, none, err
}

// checkSame returns an error if the ID already belongs to something else than desired.
func checkSame[T making[T]](have, desired T) error {
	if have.same(desired) || have.name() == "" {
		return nil
	}
	if have.name() != desired.name() {
		return collision(desired.head().ID, have.name(), desired.name())
	}
	return fmt.Errorf("%w: %s has name %q already, with other arguments; use another name",
		backend.ErrExists, have.head().ID, have.name())
}

func intend[T making[T]](p *Pool, lock *entryLock, file string, desired T) (*entryLock, T, error) {
	err := p.writeRecord(lock.path, file, desired)
	if err == nil {
		err = p.points.Hit("local/create/intent")
	}
	if err != nil {
		var none T
		err = p.undo(lock.path, err)
		lock.release()
		return nil, none, err
	}
	return lock, desired, nil
}

// createData opens the data file of an entry that is being made.
func (p *Pool) createData(entry string) (*os.File, error) {
	data, err := p.openData(entry, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	stat, err := statOf(data)
	if err == nil && stat.Size == 0 && p.copyOnWrite {
		err = disableCopyOnWrite(data)
	}
	if err == nil {
		err = p.points.Hit("local/create/data")
	}
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	return data, nil
}

// abandon removes a half-made entry, unless the caller gave up in the middle of
// a long copy, which the repeated call then continues. An entry whose source is
// still frozen stays, as the intent by which this process or the next one thaws.
func (p *Pool) abandon(ctx context.Context, entry string, begun *copyState, cause error) error {
	if errors.Is(cause, errStillFrozen) {
		p.leaveUnresolved(entry, cause)
		return cause
	}
	if ctx.Err() != nil && begun != nil {
		return cause
	}
	return p.undo(entry, cause)
}
