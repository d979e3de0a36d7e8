package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
)

func TestReady_noCallWaitsForAPoolThatIsBeingOpened(t *testing.T) {
	dir := disk(t, "ext4", 64*mebibyte)
	pool := failAndRepair(t, open(t, Options{Pool: dir}))
	t.Cleanup(func() { must(t, pool.Close()) })
	wantAnswersWhileFrozen(t, pool)
	recovered(t, pool)
	create(t, pool, spec("one", mebibyte))
}

func TestReady_ofAClosedPoolSaysThatItIsClosed(t *testing.T) {
	pool := failAndRepair(t, open(t, Options{Pool: poolDir(t)}))
	shut(t, pool)
	if err := pool.ready(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("got %v; want %v", err, errClosed)
	}
}

// tester is a test or a run of a model.
type tester interface {
	Helper()
	Fatalf(format string, arguments ...any)
}

// failAndRepair returns the pool as one that failed, whose cause is gone and that
// was not opened again yet. Its housekeeping does not run.
func failAndRepair(t tester, pool *Pool) *Pool {
	t.Helper()
	identity := filepath.Join(pool.options.Pool, poolFile)
	sound, err := os.ReadFile(identity)
	if err = errors.Join(err, pool.Close(), os.Truncate(identity, 0)); err != nil {
		t.Fatalf("damage the identity of the pool: %v", err)
	}
	failed, err := Open(context.Background(), Options{Pool: pool.options.Pool, NodeID: pool.options.NodeID})
	if err != nil {
		t.Fatalf("open the pool: %v", err)
	}
	failed.stopHousekeeping()
	if err := failed.usable(); !errors.Is(err, backend.ErrUnavailable) {
		t.Fatalf("a pool without identity: %v; want ErrUnavailable", err)
	}
	if err := os.WriteFile(identity, sound, fileMode); err != nil {
		t.Fatalf("repair the identity of the pool: %v", err)
	}
	return failed
}

// wantAnswersWhileFrozen freezes the filesystem of a pool that is not open. One
// call tries to open the pool for as long as its context lasts; the others are
// refused at once.
func wantAnswersWhileFrozen(t tester, pool *Pool) {
	t.Helper()
	top, err := os.Open(pool.options.Pool)
	if err == nil {
		err = fs.Freeze(top)
	}
	if err != nil {
		t.Fatalf("freeze the filesystem of the pool: %v", err)
	}
	defer func() { _ = errors.Join(fs.Thaw(top), top.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const callers = 3
	answers := make(chan error, callers)
	for range callers {
		go func() {
			_, err := pool.CreateVolume(ctx, spec("refused", mebibyte))
			answers <- err
		}()
	}
	want := func(sentinel error) {
		t.Helper()
		select {
		case err := <-answers:
			if !errors.Is(err, sentinel) {
				t.Fatalf("got %v; want %v", err, sentinel)
			}
		case <-time.After(time.Minute):
			t.Fatalf("a caller waits; want %v", sentinel)
		}
	}
	for range callers - 1 {
		want(errBeingOpened)
	}
	cancel()
	want(context.Canceled)
}

// recovered returns when the pool is open and recovered, also if the housekeeping
// is just trying that.
func recovered(t tester, pool *Pool) {
	t.Helper()
	for {
		err := pool.ready(context.Background())
		if err == nil {
			return
		}
		if !errors.Is(err, errBeingOpened) {
			t.Fatalf("the pool is not recovered: %v", err)
		}
		pool.phase.attempts.wait()
	}
}

// wait returns when no attempt runs.
func (a *attempts) wait() {
	a.mu.Lock()
	now := a.running
	a.mu.Unlock()
	if now != nil {
		<-now.done
	}
}
