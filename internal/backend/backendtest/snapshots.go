package backendtest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

func snapshotRules() []rule {
	return []rule{
		{"a snapshot is found and its creation may be repeated", snapshotTwice},
		{"a snapshot name belongs to one source", snapshotOfAnother},
		{"a snapshot of nothing is not found", snapshotOfNothing},
		{"a snapshot has the topology of the volumes that are made of it", snapshotTopology},
		{"each name that CSI allows makes another snapshot", strangeSnapshotNames},
		{"snapshots are listed by source, by ID and in pages", listSnapshots},
		{"a volume is restored at its size or larger, never smaller", restoreSizes},
		{"a clone is made at the size of its source or larger", cloneSizes},
		{"deletion of a snapshot is final and may be repeated", deleteSnapshotTwice},
		{"a volume with a snapshot is deleted with the snapshot intact, or not at all", deleteSource},
		{"snapshots survive the end of the process", snapshotsSurvive},
	}
}

// snapshots reports whether the subject takes snapshots.
func (b *bench) snapshots() bool { return b.guard.Features().Snapshots }

func snapshotTwice(b *bench) {
	if !b.snapshots() {
		return
	}
	volume := b.create("source")
	first, second := b.snapshot("snapshot", volume.ID), b.snapshot("snapshot", volume.ID)
	if first.ID != second.ID || first.SourceID != volume.ID || !first.Ready || first.Size != volume.Size ||
		first.Created.IsZero() {
		b.Fatalf("snapshots %+v and %+v of %+v", first, second, volume)
	}
	found, err := b.guard.Snapshot(b.ctx(), first.ID)
	if err != nil || found.ID != first.ID {
		b.Fatalf("found %+v, %v", found, err)
	}
}

func snapshotOfAnother(b *bench) {
	if !b.snapshots() {
		return
	}
	one, other := b.create("one"), b.create("other")
	b.snapshot("snapshot", one.ID)
	_, err := b.guard.CreateSnapshot(b.ctx(), backend.SnapshotSpec{Name: "snapshot", SourceID: other.ID})
	b.want(err, backend.ErrExists, "the same name for another source")
	// Names of volumes and of snapshots are independent.
	b.snapshot("one", one.ID)
}

func snapshotTopology(b *bench) {
	if !b.snapshots() {
		return
	}
	volume := b.create("source")
	made := b.snapshot("snapshot", volume.ID)
	if !b.traits.SnapshotTopology {
		if len(made.Topology) > 0 {
			b.Errorf("the snapshot has the topology %v, and the traits lack SnapshotTopology", made.Topology)
		}
		return
	}
	found, err := b.guard.Snapshot(b.ctx(), made.ID)
	b.must(err)
	listed, _, err := b.guard.Snapshots(b.ctx(), backend.SnapshotFilter{SnapshotID: made.ID}, "", 0)
	b.must(err)
	request := b.request("restored")
	request.Source.SnapshotID = made.ID
	restored := b.createAs(request)
	for _, have := range [][]backend.Topology{found.Topology, listed[0].Topology, restored.Topology} {
		if len(made.Topology) == 0 || !reflect.DeepEqual(have, made.Topology) {
			b.Errorf("topology %v, and the snapshot's at its creation is %v", have, made.Topology)
		}
	}
	spec := backend.SnapshotSpec{Name: "snapshot", SourceID: volume.ID, Topology: &backend.TopologyRequirement{Requisite: made.Topology}}
	_, err = b.guard.CreateSnapshot(b.ctx(), spec)
	b.must(err)
	elsewhere := backend.Topology{}
	for key := range made.Topology[0] {
		elsewhere[key] = "elsewhere"
	}
	spec.Topology = &backend.TopologyRequirement{Requisite: []backend.Topology{elsewhere}}
	_, err = b.guard.CreateSnapshot(b.ctx(), spec)
	b.want(err, backend.ErrExists, "the same name for another topology")
	spec.Name = "other"
	_, err = b.guard.CreateSnapshot(b.ctx(), spec)
	b.want(err, backend.ErrNoSpace, "a snapshot elsewhere")
}

func strangeSnapshotNames(b *bench) {
	if !b.snapshots() {
		return
	}
	volume := b.create("source")
	seen := map[string]string{}
	for _, name := range []string{".", "..", "../volumes", "a/b", "$(id)", "a\nb", "\u6d77"} {
		snapshot := b.snapshot(name, volume.ID)
		if other, taken := seen[snapshot.ID]; taken {
			b.Errorf("names %q and %q share snapshot %s", name, other, snapshot.ID)
		}
		seen[snapshot.ID] = name
	}
	if _, err := b.guard.Volume(b.ctx(), volume.ID); err != nil {
		b.Errorf("the source after all that: %v", err)
	}
}

func snapshotOfNothing(b *bench) {
	if !b.snapshots() {
		return
	}
	_, err := b.guard.CreateSnapshot(b.ctx(), backend.SnapshotSpec{Name: "snapshot", SourceID: "vol-absent"})
	b.want(err, backend.ErrNotFound, "an absent source")
	_, err = b.guard.CreateSnapshot(b.ctx(), backend.SnapshotSpec{Name: "snapshot"})
	b.want(err, backend.ErrInvalid, "no source")
	_, err = b.guard.Snapshot(b.ctx(), "../volumes")
	b.want(err, backend.ErrNotFound, "a foreign snapshot ID")
	restore := b.request("from nothing")
	restore.Source.SnapshotID = "snap-absent"
	_, err = b.guard.CreateVolume(b.ctx(), restore)
	b.want(err, backend.ErrNotFound, "a restore of an absent snapshot")
	b.wantVolumes(0)
}

func (b *bench) listedSnapshots(filter backend.SnapshotFilter, token string, maximum int) ([]string, string) {
	b.Helper()
	snapshots, next, err := b.guard.Snapshots(b.ctx(), filter, token, maximum)
	b.must(err)
	ids := make([]string, len(snapshots))
	for i, snapshot := range snapshots {
		ids[i] = snapshot.ID
	}
	return ids, next
}

func listSnapshots(b *bench) {
	if !b.snapshots() {
		return
	}
	one, other := b.create("one"), b.create("other")
	var want []string
	for i := range 5 {
		want = append(want, b.snapshot(fmt.Sprintf("snapshot-%d", i), one.ID).ID)
	}
	last := b.snapshot("snapshot-of-other", other.ID)
	slices.Sort(want)
	if got, _ := b.listedSnapshots(backend.SnapshotFilter{SourceID: one.ID}, "", 0); !slices.Equal(got, want) {
		b.Errorf("by source: %v; want %v", got, want)
	}
	if got, _ := b.listedSnapshots(backend.SnapshotFilter{SnapshotID: last.ID}, "", 0); !slices.Equal(got, []string{last.ID}) {
		b.Errorf("by ID: %v; want %v", got, last.ID)
	}
	if got, _ := b.listedSnapshots(backend.SnapshotFilter{SnapshotID: "snap-absent"}, "", 0); len(got) != 0 {
		b.Errorf("an unknown ID listed %v", got)
	}
	var paged []string
	token := ""
	for {
		ids, next := b.listedSnapshots(backend.SnapshotFilter{SourceID: one.ID}, token, 2)
		paged = append(paged, ids...)
		if token = next; token == "" {
			break
		}
	}
	if !slices.Equal(paged, want) {
		b.Errorf("pages gave %v; want %v", paged, want)
	}
}

func restoreSizes(b *bench) {
	if !b.snapshots() {
		return
	}
	volume := b.create("source")
	snapshot := b.snapshot("snapshot", volume.ID)
	b.derivedSizes(volume.Size, backend.Source{SnapshotID: snapshot.ID})
}

func cloneSizes(b *bench) {
	if !b.traits.Clone {
		return
	}
	volume := b.create("source")
	b.derivedSizes(volume.Size, backend.Source{VolumeID: volume.ID})
	_, err := b.guard.CreateVolume(b.ctx(), func() guard.CreateRequest {
		request := b.request("of nothing")
		request.Source.VolumeID = "vol-absent"
		return request
	}())
	b.want(err, backend.ErrNotFound, "a clone of an absent volume")
}

func (b *bench) derivedSizes(source int64, from backend.Source) {
	b.Helper()
	derive := func(name string, r backend.SizeRange) (backend.Volume, error) {
		request := b.request(name)
		request.Range, request.Source = r, from
		return b.guard.CreateVolume(b.ctx(), request)
	}
	for name, c := range map[string]struct {
		give backend.SizeRange
		want int64
	}{
		"same":    {backend.SizeRange{Required: source}, source},
		"unsaid":  {backend.SizeRange{}, source},
		"larger":  {backend.SizeRange{Required: source + b.traits.AllocationUnit}, source + b.traits.AllocationUnit},
		"limited": {backend.SizeRange{Limit: source}, source},
	} {
		volume, err := derive(name, c.give)
		if err != nil || volume.Size != c.want || volume.Source != from {
			b.Errorf("%s: got %+v, %v; want %d bytes", name, volume, err, c.want)
		}
	}
	_, err := derive("smaller", backend.SizeRange{Required: source - 1})
	b.want(err, backend.ErrOutOfRange, "smaller than the source")
	_, err = derive("too limited", backend.SizeRange{Limit: source - 1})
	b.want(err, backend.ErrOutOfRange, "limited below the source")
}

func deleteSnapshotTwice(b *bench) {
	if !b.snapshots() {
		return
	}
	snapshot := b.snapshot("snapshot", b.create("source").ID)
	for range 2 {
		b.must(b.guard.DeleteSnapshot(b.ctx(), snapshot.ID))
		_, err := b.guard.Snapshot(b.ctx(), snapshot.ID)
		b.want(err, backend.ErrNotFound, "after deletion")
	}
}

func deleteSource(b *bench) {
	if !b.snapshots() {
		return
	}
	volume := b.create("source")
	snapshot := b.snapshot("snapshot", volume.ID)
	err := b.guard.DeleteVolume(b.ctx(), volume.ID)
	if err != nil && !errors.Is(err, backend.ErrInUse) {
		b.Fatalf("got %v; want success or ErrInUse", err)
	}
	if _, err := b.guard.Snapshot(b.ctx(), snapshot.ID); err != nil {
		b.Fatalf("the snapshot after its source: %v", err)
	}
	restore := b.request("restored")
	restore.Source.SnapshotID = snapshot.ID
	b.createAs(restore)
}

func snapshotsSurvive(b *bench) {
	if !b.snapshots() {
		return
	}
	snapshot := b.snapshot("snapshot", b.create("source").ID)
	after := b.reopened()
	found, err := after.guard.Snapshot(b.ctx(), snapshot.ID)
	if err != nil || found.Size != snapshot.Size || !found.Created.Equal(snapshot.Created) || !found.Ready {
		b.Fatalf("after reopening: %+v, %v; want %+v", found, err, snapshot)
	}
}
