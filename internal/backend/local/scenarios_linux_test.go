package local

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
)

var handleOfTests = "csi-" + strings.Repeat("0123456789abcdef", 4)

// scenarios are the operations of the sweep, by name.
func scenarios() map[string]scenario {
	return map[string]scenario{
		"open a new pool":     {prepare: func(*world) {}, corrupt: removePool, act: onlyOpen},
		"recover":             {prepare: prepared, corrupt: leaveHalves, act: onlyOpen, opening: true},
		"adopt":               {prepare: prepared, corrupt: leaveHalves, act: onlyOpen, opening: true, adopter: "node-2"},
		"create thin":         creation(thin, backend.Source{}),
		"create thick":        creation(thick, backend.Source{}),
		"restore thin":        creation(thin, backend.Source{SnapshotID: idOf(snapshotPrefix, "snap")}),
		"restore thick":       creation(thick, backend.Source{SnapshotID: idOf(snapshotPrefix, "snap")}),
		"clone thin":          creation(thin, backend.Source{VolumeID: idOf(volumePrefix, "one")}),
		"clone thick":         creation(thick, backend.Source{VolumeID: idOf(volumePrefix, "one")}),
		"delete volume":       {prepare: prepared, act: deleteVolume},
		"snapshot":            snapshotting(prepared),
		"snapshot of thick":   snapshotting(func(w *world) { w.filled("one", thick) }),
		"snapshot of mounted": snapshotting(func(w *world) { w.mountVolume("one") }),
		"snapshot of frozen": snapshotting(func(w *world) {
			w.mountVolume("one")
			freezeMount(w, w.mounted)
			w.frozen = true
		}),
		"delete snapshot":           {prepare: prepared, act: deleteSnapshot},
		"group":                     {prepare: preparedPair, act: snapshotGroup, check: checkGroup},
		"delete group":              {prepare: preparedGroup, act: deleteGroup},
		"expand thin":               expansion(thin),
		"expand thick":              expansion(thick),
		"modify to thick":           modification(thin, thick),
		"modify to thin":            modification(thick, thin),
		"inline":                    {prepare: prepared, act: createInline},
		"delete inline":             {prepare: func(w *world) { must(w.TB, createInline(w.Context(), w.pool, nil)) }, act: deleteInline},
		"open a device":             {prepare: prepared, act: openThinDevice},
		"open a device that stays":  {prepare: prepared, act: openKeptDevice, check: checkKeptDevice},
		"mark a format":             {prepare: prepared, act: markFormat},
		"replace another beginning": {prepare: preparedBeginning, act: createOne("begun", backend.Source{}), partial: idOf(volumePrefix, "begun")},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func onlyOpen(context.Context, *Pool, *guard.Guard) error { return nil }

func removePool(w *world) {
	entries, err := os.ReadDir(w.dir)
	must(w.TB, err)
	for _, entry := range entries {
		must(w.TB, os.RemoveAll(filepath.Join(w.dir, entry.Name())))
	}
}

// leaveHalves leaves one of everything that start-up finishes or removes.
func leaveHalves(w *world) {
	w.openWith(Options{Pool: w.dir})
	p := w.pool
	volume := volumeRecord{Name: "half", Size: filledSize, Provisioning: thin, SectorSize: 512}
	named := func(prefix string) volumeRecord { volume.header = newHeader(idOf(prefix, "half")); return volume }
	for entry, record := range map[string]any{
		volumePath(idOf(volumePrefix, "half")):     named(volumePrefix),
		volumePath(idOf(ephemeralPrefix, "half")):  named(ephemeralPrefix),
		snapshotPath(idOf(snapshotPrefix, "half")): snapshotRecord{header: newHeader(idOf(snapshotPrefix, "half")), Name: "half", GroupID: idOf(groupPrefix, "half"), Size: filledSize, SectorSize: 512},
		groupPath(idOf(groupPrefix, "half")):       groupRecord{header: newHeader(idOf(groupPrefix, "half")), Name: "half", SourceIDs: []string{idOf(volumePrefix, "one")}},
	} {
		must(w.TB, p.root.Mkdir(entry, directoryMode))
		must(w.TB, p.writeRecord(entry, recordFileOf(entry), record))
		must(w.TB, p.root.WriteFile(filepath.Join(entry, dataFile), []byte("half"), fileMode))
	}
	must(w.TB, p.root.Mkdir(volumePath(idOf(volumePrefix, "empty")), directoryMode))
	must(w.TB, p.root.Mkdir(filepath.Join(trashDir, idOf(volumePrefix, "gone")+".X"), directoryMode))
	must(w.TB, p.root.WriteFile(filepath.Join(volumePath(idOf(volumePrefix, "one")), volumeFile+durable.TempSuffix), nil, fileMode))
	w.shut()
}

func recordFileOf(entry string) string {
	return map[string]string{volumesDir: volumeFile, snapshotsDir: snapshotFile, groupsDir: groupFile}[filepath.Dir(entry)]
}

// prepared has a volume and a snapshot of it.
func prepared(w *world) {
	w.filled("one", thin)
	_, err := w.pool.CreateSnapshot(w.Context(), backend.SnapshotSpec{Name: "snap", SourceID: idOf(volumePrefix, "one")})
	must(w.TB, err)
}

func creation(provisioning string, from backend.Source) scenario {
	return scenario{
		prepare: prepared,
		act: func(ctx context.Context, _ *Pool, g *guard.Guard) error {
			_, err := g.CreateVolume(ctx, guard.CreateRequest{
				Name: "two", Range: backend.SizeRange{Required: filledSize + 4*mebibyte}, Source: from,
				Parameters:   map[string]string{parameterProvisioning: provisioning},
				Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter}},
			})
			return err
		},
		check: func(w *world) {
			w.wantContent("one", "one")
			if from != (backend.Source{}) {
				w.wantContent("two", "one")
			}
			if provisioning == thick {
				w.wantAllocated("two")
			}
		},
	}
}

func createOne(name string, from backend.Source) func(context.Context, *Pool, *guard.Guard) error {
	return func(ctx context.Context, _ *Pool, g *guard.Guard) error {
		_, err := g.CreateVolume(ctx, guard.CreateRequest{
			Name: name, Range: backend.SizeRange{Required: 12 * mebibyte}, Source: from,
			Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter}},
		})
		return err
	}
}

// preparedBeginning has the beginning of a copy that is requested with other arguments now.
func preparedBeginning(w *world) {
	prepared(w)
	record := volumeRecord{
		header: newHeader(idOf(volumePrefix, "begun")), Name: "begun", Size: filledSize, Provisioning: thin, SectorSize: 512,
		Source: source{SnapshotID: idOf(snapshotPrefix, "snap")}, Copy: &copyState{Offset: mebibyte},
	}
	must(w.TB, w.pool.root.Mkdir(volumePath(record.ID), directoryMode))
	must(w.TB, w.pool.writeRecord(volumePath(record.ID), volumeFile, record))
	must(w.TB, w.pool.root.WriteFile(filepath.Join(volumePath(record.ID), dataFile), []byte("begun"), fileMode))
}

func deleteVolume(ctx context.Context, _ *Pool, g *guard.Guard) error {
	return g.DeleteVolume(ctx, idOf(volumePrefix, "one"))
}

func snapshotting(prepare func(*world)) scenario {
	return scenario{
		prepare: prepare,
		act: func(ctx context.Context, _ *Pool, g *guard.Guard) error {
			_, err := g.CreateSnapshot(ctx, backend.SnapshotSpec{Name: "second", SourceID: idOf(volumePrefix, "one")})
			return err
		},
		check: func(w *world) {
			if !w.formats {
				w.wantContent("one", "one")
			}
			_, err := w.pool.SnapshotByName(w.Context(), "second")
			must(w.TB, err)
		},
	}
}

func deleteSnapshot(ctx context.Context, _ *Pool, g *guard.Guard) error {
	return g.DeleteSnapshot(ctx, idOf(snapshotPrefix, "snap"))
}

func preparedPair(w *world) {
	w.mountVolume("one")
	w.filled("two", thin)
}

func snapshotGroup(ctx context.Context, _ *Pool, g *guard.Guard) error {
	_, err := g.CreateGroup(ctx, backend.GroupSnapshotSpec{
		Name: "both", SourceIDs: []string{idOf(volumePrefix, "one"), idOf(volumePrefix, "two")},
	})
	return err
}

func checkGroup(w *world) {
	group, err := w.pool.GroupByName(w.Context(), "both")
	if err != nil || len(group.Snapshots) != 2 {
		w.Errorf("got %+v, %v; want two members", group, err)
	}
}

func preparedGroup(w *world) {
	preparedPair(w)
	must(w.TB, snapshotGroup(w.Context(), nil, guard.New(w.pool)))
}

func deleteGroup(ctx context.Context, _ *Pool, g *guard.Guard) error {
	return g.DeleteGroup(ctx, idOf(groupPrefix, "both"), nil)
}

func expansion(provisioning string) scenario {
	const larger = filledSize + 8*mebibyte
	return scenario{
		prepare: func(w *world) { w.filled("one", provisioning) },
		act: func(ctx context.Context, _ *Pool, g *guard.Guard) error {
			_, err := g.Expand(ctx, idOf(volumePrefix, "one"), backend.SizeRange{Required: larger})
			return err
		},
		check: func(w *world) {
			w.wantContent("one", "one")
			if found, err := w.pool.VolumeByName(w.Context(), "one"); err != nil || found.Size != larger {
				w.Errorf("got %+v, %v; want %d bytes", found, err, int64(larger))
			}
			if provisioning == thick {
				w.wantAllocated("one")
			}
		},
	}
}

func modification(from, to string) scenario {
	return scenario{
		prepare: func(w *world) { w.volume("one", filledSize, from) },
		act: func(ctx context.Context, _ *Pool, g *guard.Guard) error {
			return g.Modify(ctx, idOf(volumePrefix, "one"), map[string]string{parameterProvisioning: to}, nil)
		},
		check: func(w *world) {
			record, err := w.pool.recordOnDisk(idOf(volumePrefix, "one"))
			if err != nil || record.Provisioning != to {
				w.Errorf("got %+v, %v; want %s", record, err, to)
			}
			if to == thick {
				w.wantAllocated("one")
			}
		},
	}
}

func (w *world) wantAllocated(name string) {
	w.Helper()
	data, err := w.pool.openData(volumePath(idOf(volumePrefix, name)), os.O_RDONLY)
	must(w.TB, err)
	defer func() { _ = data.Close() }()
	stat, err := statOf(data)
	must(w.TB, err)
	if stat.Blocks*512 < stat.Size {
		w.Errorf("volume %s has %d bytes allocated of %d", name, stat.Blocks*512, stat.Size)
	}
	shared, err := sharedExtents(data)
	must(w.TB, err)
	if len(shared) > 0 {
		w.Errorf("volume %s shares %d extents", name, len(shared))
	}
}

func createInline(ctx context.Context, p *Pool, _ *guard.Guard) error {
	_, err := p.CreateEphemeral(ctx, backend.EphemeralSpec{
		Handle: handleOfTests, Target: "/somewhere", Attributes: map[string]string{"size": "8Mi"},
	})
	return err
}

func deleteInline(ctx context.Context, p *Pool, _ *guard.Guard) error {
	return p.DeleteEphemeral(ctx, handleOfTests)
}

func openThinDevice(ctx context.Context, p *Pool, _ *guard.Guard) error {
	device, err := p.OpenDevice(ctx, backend.DeviceRequest{VolumeID: idOf(volumePrefix, "one")})
	if err != nil {
		return err
	}
	return device.Release()
}

func openKeptDevice(ctx context.Context, p *Pool, _ *guard.Guard) error {
	device, err := p.OpenDevice(ctx, backend.DeviceRequest{VolumeID: idOf(volumePrefix, "one"), Keep: true})
	if err != nil {
		return err
	}
	return device.Release()
}

func checkKeptDevice(w *world) {
	devices, err := w.pool.Devices(w.Context(), idOf(volumePrefix, "one"))
	if err != nil || len(devices) != 1 {
		w.Errorf("devices %+v, %v; want one", devices, err)
	}
	must(w.TB, w.pool.CloseDevice(w.Context(), idOf(volumePrefix, "one")))
}

func markFormat(ctx context.Context, p *Pool, _ *guard.Guard) error {
	return p.SetFormatMark(ctx, idOf(volumePrefix, "one"), backend.FormatMark{FSType: "ext4", Done: true})
}

// mountVolume makes a volume with a mounted filesystem.
func (w *world) mountVolume(name string) {
	w.Helper()
	volume := w.volume(name, mountedSize, thin)
	device := openDevice(w.TB, w.pool, backend.DeviceRequest{VolumeID: volume.ID})
	mkfs(w.TB, fs.Ext4, device.Path)
	dir := filepath.Join(w.TempDir(), "mounted")
	must(w.TB, os.Mkdir(dir, 0o700))
	must(w.TB, unix.Mount(device.Path, dir, fs.Ext4, 0, ""))
	must(w.TB, device.Release())
	w.mounted, w.formats = dir, true
}

// thawAndUnmount works on a filesystem that a failed test left frozen, too.
func thawAndUnmount(t testing.TB, dir string) {
	t.Helper()
	root, err := os.Open(dir)
	must(t, err)
	must(t, fs.Thaw(root))
	must(t, root.Close())
	unmount(t, dir)
}
