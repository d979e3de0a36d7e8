package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

func (b *bench) ctx() context.Context { return b.Context() }

// size is a size in bytes that every filesystem of the backend accepts.
func (b *bench) size() int64 { return max(b.traits.MinimumSize, b.traits.AllocationUnit) }

func (b *bench) request(name string) guard.CreateRequest {
	return guard.CreateRequest{
		Name:              name,
		Range:             backend.SizeRange{Required: b.size()},
		Parameters:        b.subject.Parameters,
		MutableParameters: b.subject.Mutable,
		Capabilities:      []backend.Capability{{Mode: b.traits.AccessModes[0], Block: b.traits.Block}},
	}
}

func (b *bench) create(name string) backend.Volume {
	b.Helper()
	return b.createAs(b.request(name))
}

func (b *bench) createAs(request guard.CreateRequest) backend.Volume {
	b.Helper()
	volume, err := b.guard.CreateVolume(b.ctx(), request)
	if err != nil {
		b.Fatalf("create %q: %v", request.Name, err)
	}
	return volume
}

// snapshot takes a snapshot and repeats the call until it is ready, as a CO does.
func (b *bench) snapshot(name, source string) backend.Snapshot {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		snapshot, err := b.guard.CreateSnapshot(b.ctx(), backend.SnapshotSpec{Name: name, SourceID: source})
		if err != nil {
			b.Fatalf("snapshot %q of %s: %v", name, source, err)
		}
		if snapshot.Ready || time.Now().After(deadline) {
			return snapshot
		}
	}
}

// must fails the rule on an error.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want fails the rule unless err wraps the sentinel.
func (b *bench) want(err, sentinel error, why string) {
	b.Helper()
	if !errors.Is(err, sentinel) {
		b.Fatalf("%s: got error %v; want %v", why, err, sentinel)
	}
}

// volumeIDs lists everything in one page.
func (b *bench) volumeIDs() []string {
	b.Helper()
	volumes, next, err := b.guard.Volumes(b.ctx(), "", 0)
	if err != nil || next != "" {
		b.Fatalf("list: token %q, %v", next, err)
	}
	ids := make([]string, len(volumes))
	for i, volume := range volumes {
		ids[i] = volume.ID
	}
	return ids
}

func (b *bench) wantVolumes(n int) {
	b.Helper()
	if ids := b.volumeIDs(); len(ids) != n {
		b.Fatalf("there are %d volumes %v; want %d", len(ids), ids, n)
	}
}
