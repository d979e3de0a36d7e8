package local

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// observed is a context that looks at the tasks at each check of the context, which a
// copy makes before each chunk.
type observed struct {
	context.Context
	look func() error
}

func (o *observed) Err() error { return o.look() }

// A copy reports its data: holes are not copied and do not count. What an interrupted
// copy did is done.
func TestCopy_reportsItsProgress(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "ext4", gibibyte)})
	pool.saveEvery = copyChunk
	volume := create(t, pool, spec("one", 128*mebibyte))
	writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte("content "), 3*mebibyte))            // 24 MiB
	writeVolume(t, pool, volume.ID, 100*mebibyte, bytes.Repeat([]byte("content "), 2*mebibyte)) // 16 MiB
	const total = 40 * mebibyte

	var tracker progress.Tracker
	var seen []progress.Operation
	stopAt, stopped := int64(total), false
	ctx := &observed{Context: tracker.For(t.Context(), "CreateVolume", "two"), look: func() error {
		for _, one := range tracker.List() {
			seen = append(seen, one)
			stopped = stopped || one.Done >= stopAt
		}
		if stopped {
			return context.Canceled
		}
		return nil
	}}
	clone := backend.VolumeSpec{Name: "two", Size: 128 * mebibyte, Source: backend.Source{VolumeID: volume.ID}}

	stopAt = 16 * mebibyte
	if _, err := pool.CreateVolume(ctx, clone); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the cancellation", err)
	}
	wantDone(t, seen, 0, 8*mebibyte, 16*mebibyte)
	if left := tracker.List(); len(left) != 0 {
		t.Errorf("after the cancellation, %+v runs", left)
	}

	seen, stopAt, stopped = nil, total+1, false
	if _, err := pool.CreateVolume(ctx, clone); err != nil {
		t.Fatal(err)
	}
	wantDone(t, seen, 16*mebibyte, 24*mebibyte, 32*mebibyte)
	for _, one := range seen {
		if one.Total != total || one.Call != "CreateVolume" || one.Object != "two" || one.Doing != "copying" {
			t.Fatalf("the operation is %+v, want %d bytes in all", one, total)
		}
	}
	if left := tracker.List(); len(left) != 0 {
		t.Errorf("after the copy, %+v runs", left)
	}
}

func wantDone(t *testing.T, seen []progress.Operation, want ...int64) {
	t.Helper()
	var done []int64
	for _, one := range seen {
		done = append(done, one.Done)
	}
	if done = slices.Compact(done); !slices.Equal(done, want) {
		t.Errorf("done were %d, want %d", done, want)
	}
}

// Blocks that a thick clone must not share are copied, which is reported, too.
func TestUnshare_reportsItsProgress(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	desired := spec("one", 32*mebibyte)
	desired.Parameters = map[string]string{parameterProvisioning: thick}
	volume := create(t, pool, desired)
	writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte("content "), 4*mebibyte))

	var tracker progress.Tracker
	var seen []progress.Operation
	ctx := &observed{Context: tracker.For(t.Context(), "CreateVolume", "two"), look: func() error {
		seen = append(seen, tracker.List()...)
		return nil
	}}
	clone := desired
	clone.Name, clone.Source = "two", backend.Source{VolumeID: volume.ID}
	if _, err := pool.CreateVolume(ctx, clone); err != nil {
		t.Fatal(err)
	}
	wantDone(t, seen, 0, 8*mebibyte, 16*mebibyte, 24*mebibyte)
	if len(seen) > 0 && seen[0].Total != 32*mebibyte {
		t.Errorf("the operation is %+v", seen[0])
	}
}

// A thick volume is allocated in parts. A call that is cancelled, or that finds the pool
// full half way, leaves no blocks behind.
func TestReserve_reportsItsProgressAndLeavesNothingHalfDone(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	pool.allocateEvery = 8 * mebibyte
	desired := spec("one", 32*mebibyte)
	desired.Parameters = map[string]string{parameterProvisioning: thick}
	before := freeOf(t, pool)

	var tracker progress.Tracker
	var seen []progress.Operation
	stopAt := int64(16 * mebibyte)
	ctx := &observed{Context: tracker.For(t.Context(), "CreateVolume", "one"), look: func() error {
		seen = append(seen, tracker.List()...)
		if len(seen) > 0 && seen[len(seen)-1].Done >= stopAt {
			return context.Canceled
		}
		return nil
	}}
	if _, err := pool.CreateVolume(ctx, desired); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the cancellation", err)
	}
	wantDone(t, seen, 0, 8*mebibyte, 16*mebibyte)
	wantFree(t, pool, before)

	seen, stopAt = nil, gibibyte
	volume, err := pool.CreateVolume(ctx, desired)
	if err != nil {
		t.Fatal(err)
	}
	wantDone(t, seen, 0, 8*mebibyte, 16*mebibyte, 24*mebibyte)
	if seen[0].Doing != "allocating" || seen[0].Total != 32*mebibyte {
		t.Errorf("the operation is %+v", seen[0])
	}

	before, seen, stopAt = freeOf(t, pool), nil, 16*mebibyte
	if _, err := pool.Expand(ctx, volume, 64*mebibyte); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the cancellation of the growth", err)
	}
	if seen[0].Total != 32*mebibyte {
		t.Errorf("the growth is %+v", seen[0])
	}
	wantFree(t, pool, before)
}

func freeOf(t *testing.T, pool *Pool) int64 {
	t.Helper()
	now, err := roomOf(pool.top)
	if err != nil {
		t.Fatal(err)
	}
	return now.available
}

// wantFree waits until a pool has as much room as before: xfs frees blocks later.
func wantFree(t *testing.T, pool *Pool, want int64) {
	t.Helper()
	const metadata = mebibyte
	for deadline := time.Now().Add(time.Minute); freeOf(t, pool) < want-metadata; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the pool has %d bytes left, want %d", freeOf(t, pool), want)
		}
	}
}
