package local

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

const (
	modelSteps = 70 // of one check, on average
	cellSize   = 256 << 10
)

// modelChecks is the number of checks of one round on a filesystem.
const modelChecks = 8

// modelLength returns the operations that the rounds reach at least on each filesystem.
func modelLength() int {
	switch {
	case testing.Short():
		return 1
	case testAll:
		return 10_000 / 3
	}
	return 4_000 / 3
}

// TestModel compares the pool with a model of it over random operations. It
// takes rapid's flags: -rapid.checks makes it longer, -rapid.seed repeats a run.
func TestModel(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]int{"rapid.steps": modelSteps, "rapid.checks": modelChecks} {
		if given[name] {
			continue
		}
		restore := flag.Lookup(name).Value.String()
		must(t, flag.Set(name, fmt.Sprint(value)))
		t.Cleanup(func() { _ = flag.Set(name, restore) })
	}
	t.Run("filesystems", func(t *testing.T) {
		for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
			t.Run(fsType, func(t *testing.T) {
				t.Parallel()
				base := disk(t, fsType, 2*gibibyte)
				operations := 0
				for operations == 0 || operations < modelLength() && !given["rapid.checks"] && !t.Failed() {
					rapid.Check(t, func(r *rapid.T) { operations += checkModel(r, t, base) })
				}
				t.Logf("%d operations", operations)
			})
		}
	})
}

func checkModel(r *rapid.T, t *testing.T, base string) int {
	dir, err := os.MkdirTemp(base, "pool-")
	if err != nil {
		r.Fatal(err)
	}
	m := &model{T: r, base: base, dir: dir}
	m.forgetAll()
	m.open()
	defer func() {
		m.endMounted()
		for _, name := range slices.Sorted(maps.Keys(m.volumes)) {
			_ = m.pool.CloseDevice(m.ctx(), idOf(volumePrefix, name))
		}
		_ = m.pool.Close()
		nodetest.NoLeaks(t, dir)
		_ = os.RemoveAll(dir)
	}()
	r.Repeat(m.actions())
	for _, name := range slices.Sorted(maps.Keys(m.volumes)) {
		m.wantContent(name)
	}
	m.wantCapacity()
	return m.operations
}

// model is the expected state of the pool.
type model struct {
	*rapid.T
	base       string // the mount point of the filesystem
	dir        string
	pool       *Pool
	guard      *guard.Guard
	operations int
	mounted    string // a volume's filesystem, during a step
	// unmeasured bounds how many bytes the ledger promises too few, by what it cannot see
	// since the last measurement: writes, and copies that were not made or are gone.
	unmeasured int64

	volumes   map[string]*modelVolume
	snapshots map[string]*modelSnapshot // by name; members of groups are not in it
	groups    map[string]modelGroup
	inline    map[string]bool // by handle
}

type modelVolume struct {
	size         int64
	asked        guard.CreateRequest
	provisioning string
	cells        []byte // the byte that fills each cell
	kept         bool   // a device is attached
}

type modelSnapshot struct {
	source string // volume ID
	cells  []byte
}

// modelGroup gives the cells of each member by source ID.
type modelGroup map[string][]byte

func (m *model) forgetAll() {
	m.volumes, m.snapshots = map[string]*modelVolume{}, map[string]*modelSnapshot{}
	m.groups, m.inline = map[string]modelGroup{}, map[string]bool{}
}

func (m *model) ctx() context.Context { return context.Background() }

func (m *model) open() {
	pool, err := Open(m.ctx(), Options{Pool: m.dir, NodeID: "node-1"})
	if err != nil {
		m.Fatal(err)
	}
	m.pool, m.guard = pool, guard.New(pool)
	if !pool.reflink.Load() {
		pool.stopMeasurements() // see wantCurrentLedger: only the action measures
	}
	m.unmeasured = 0
}

func (m *model) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	for name, action := range map[string]func(){
		"create": m.create, "restore": m.restore, "clone": m.clone, "delete": m.delete,
		"snapshot": m.snapshot, "delete snapshot": m.deleteSnapshot,
		"group": m.group, "delete group": m.deleteGroup,
		"expand": m.expand, "modify": m.modify,
		"write": m.write, "write more": m.write, "verify": m.verify,
		"attach": m.attach, "detach": m.detach, "reopen": m.reopen, "inline": m.inlineLife, "measure": m.measure,
		"fault": m.underFault, "another fault": m.underFault, "third fault": m.underFault, "fourth fault": m.underFault,
		"read-only": m.readOnly, "damage": m.damage, "full": m.deleteWhenFull, "failed": m.failedPool, "mounted": m.mountedSnapshot,
	} {
		actions[name] = func(t *rapid.T) {
			m.T = t
			m.operations++
			action()
			m.unmeasured += unseen[name]
		}
	}
	actions[""] = func(t *rapid.T) {
		m.T = t
		m.wantListings()
		m.wantCurrentLedger()
		wantAgreement(m.ctx(), m.T, m.pool, "after an operation")
	}
	return actions
}

// unseen is how many bytes an operation may leave free that the ledger takes for used, at
// most: blocks of a snapshot's source that need no copy, or what is undone.
var unseen = map[string]int64{
	"snapshot": 8 * mebibyte, "group": 16 * mebibyte, "delete snapshot": 8 * mebibyte, "delete group": 16 * mebibyte,
	"mounted": gibibyte, "full": gibibyte,
	"fault": gibibyte, "another fault": gibibyte, "third fault": gibibyte, "fourth fault": gibibyte,
}

func (m *model) draw(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(m.T, label)
}

func (m *model) drawVolume() string   { return m.draw("volume", "a", "b", "c", "d", "e") }
func (m *model) drawSnapshot() string { return m.draw("snapshot", "s", "t", "u") }
func (m *model) drawGroup() string    { return m.draw("group", "g", "h") }

func (m *model) drawSize() int64 {
	return int64(rapid.IntRange(1, 6).Draw(m.T, "MiB")) * mebibyte
}

// want compares an error with the sentinel that the model expects; nil for success.
func (m *model) want(err, sentinel error) bool {
	m.Helper()
	if sentinel == nil && err != nil || sentinel != nil && !errors.Is(err, sentinel) {
		m.Fatalf("got %v; want %v", err, sentinel)
	}
	return err == nil
}

func (m *model) create() { m.make(backend.Source{}, nil, nil) }

func (m *model) restore() {
	name := m.drawSnapshot()
	source := backend.Source{SnapshotID: idOf(snapshotPrefix, name)}
	if snapshot := m.snapshots[name]; snapshot != nil {
		m.make(source, snapshot.cells, nil)
		return
	}
	m.make(source, nil, backend.ErrNotFound)
}

func (m *model) clone() {
	name := m.drawVolume()
	source := backend.Source{VolumeID: idOf(volumePrefix, name)}
	volume := m.volumes[name]
	switch {
	case volume == nil:
		m.make(source, nil, backend.ErrNotFound)
	case volume.kept && !m.pool.reflink.Load():
		m.make(source, volume.cells, backend.ErrPrecondition)
	default:
		m.make(source, volume.cells, nil)
	}
}

// make creates a volume and expects the model's outcome.
func (m *model) make(source backend.Source, content []byte, sentinel error) {
	name, provisioning := m.drawVolume(), m.draw("provisioning", thin, thick)
	request := guard.CreateRequest{
		Name: name, Range: backend.SizeRange{Required: max(m.drawSize(), int64(len(content))*cellSize)}, Source: source,
		Parameters:   map[string]string{parameterProvisioning: provisioning},
		Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter, Block: true}},
	}
	if have := m.volumes[name]; have != nil {
		sentinel = nil
		if !have.satisfies(request) {
			sentinel = backend.ErrExists
		}
	}
	volume, err := m.guard.CreateVolume(m.ctx(), request)
	if !m.want(err, sentinel) || m.volumes[name] != nil {
		return
	}
	cells := make([]byte, volume.Size/cellSize)
	copy(cells, content)
	m.volumes[name] = &modelVolume{size: volume.Size, asked: request, provisioning: provisioning, cells: cells}
	m.wantContent(name)
}

func (v *modelVolume) satisfies(request guard.CreateRequest) bool {
	return v.size >= request.Range.Required && v.asked.Source == request.Source &&
		maps.Equal(v.asked.Parameters, request.Parameters)
}

func (m *model) delete() {
	name := m.drawVolume()
	var sentinel error
	if volume := m.volumes[name]; volume != nil && volume.kept {
		sentinel = backend.ErrInUse
	}
	if m.want(m.guard.DeleteVolume(m.ctx(), idOf(volumePrefix, name)), sentinel) {
		delete(m.volumes, name)
	}
}

func (m *model) snapshot() {
	name, source := m.drawSnapshot(), m.drawVolume()
	sourceID := idOf(volumePrefix, source)
	volume, have := m.volumes[source], m.snapshots[name]
	var sentinel error
	switch {
	case have != nil && have.source != sourceID:
		sentinel = backend.ErrExists
	case have != nil:
	case volume == nil:
		sentinel = backend.ErrNotFound
	case volume.kept && !m.pool.reflink.Load():
		sentinel = backend.ErrPrecondition
	}
	_, err := m.guard.CreateSnapshot(m.ctx(), backend.SnapshotSpec{Name: name, SourceID: sourceID})
	if m.want(err, sentinel) && have == nil {
		m.snapshots[name] = &modelSnapshot{source: sourceID, cells: slices.Clone(volume.cells)}
	}
}

func (m *model) deleteSnapshot() {
	name := m.drawSnapshot()
	m.want(m.guard.DeleteSnapshot(m.ctx(), idOf(snapshotPrefix, name)), nil)
	delete(m.snapshots, name)
}

func (m *model) group() {
	name, sources := m.drawGroup(), []string{m.drawVolume(), m.drawVolume()}
	slices.Sort(sources)
	sources = slices.Compact(sources)
	desired := modelGroup{}
	var ids []string
	var sentinel error
	for _, source := range sources {
		id := idOf(volumePrefix, source)
		ids = append(ids, id)
		switch volume := m.volumes[source]; {
		case volume == nil:
			sentinel = backend.ErrNotFound
		case volume.kept && !m.pool.reflink.Load() && sentinel == nil:
			sentinel = backend.ErrPrecondition
		default:
			desired[id] = slices.Clone(volume.cells)
		}
	}
	have := m.groups[name]
	if have != nil {
		sentinel = nil
		if slices.Sort(ids); !slices.Equal(slices.Sorted(maps.Keys(have)), ids) {
			sentinel = backend.ErrExists
		}
	}
	_, err := m.guard.CreateGroup(m.ctx(), backend.GroupSnapshotSpec{Name: name, SourceIDs: ids})
	if m.want(err, sentinel) && have == nil {
		m.groups[name] = desired
	}
}

func (m *model) deleteGroup() {
	name := m.drawGroup()
	m.want(m.guard.DeleteGroup(m.ctx(), idOf(groupPrefix, name), nil), nil)
	delete(m.groups, name)
}

func (m *model) expand() {
	name, size := m.drawVolume(), m.drawSize()+mebibyte
	volume := m.volumes[name]
	var sentinel error
	if volume == nil {
		sentinel = backend.ErrNotFound
	}
	grown, err := m.guard.Expand(m.ctx(), idOf(volumePrefix, name), backend.SizeRange{Required: size})
	if !m.want(err, sentinel) {
		return
	}
	volume.size = max(volume.size, size)
	volume.cells = append(volume.cells, make([]byte, volume.size/cellSize-int64(len(volume.cells)))...)
	if grown.Size != volume.size {
		m.Fatalf("volume %s has %d bytes; want %d", name, grown.Size, volume.size)
	}
	now, err := m.pool.ResizeDevice(m.ctx(), grown.ID)
	if m.want(err, nil); volume.kept && now != volume.size {
		m.Fatalf("the device of %s has %d bytes; want %d", name, now, volume.size)
	}
}

func (m *model) modify() {
	name, provisioning := m.drawVolume(), m.draw("provisioning", thin, thick)
	volume := m.volumes[name]
	var sentinel error
	if volume == nil {
		sentinel = backend.ErrNotFound
	}
	err := m.guard.Modify(m.ctx(), idOf(volumePrefix, name), map[string]string{parameterProvisioning: provisioning}, nil)
	if m.pool.copyOnWrite && volume != nil && volume.kept && provisioning == thick && errors.Is(err, backend.ErrInUse) {
		return // blocks that btrfs shares cannot be rewritten below a device
	}
	if m.want(err, sentinel) {
		volume.provisioning = provisioning
	}
}

func (m *model) write() {
	name, value := m.drawVolume(), byte(rapid.IntRange(1, 255).Draw(m.T, "value"))
	volume := m.volumes[name]
	if volume == nil {
		return
	}
	cell := rapid.IntRange(0, len(volume.cells)-1).Draw(m.T, "cell")
	m.withDevice(name, func(file *os.File) {
		_, err := file.WriteAt(bytes.Repeat([]byte{value}, cellSize), int64(cell)*cellSize)
		m.want(errors.Join(err, file.Sync()), nil)
	})
	volume.cells[cell] = value
	m.unmeasured += cellSize
}

func (m *model) withDevice(name string, use func(*os.File)) {
	m.Helper()
	device, err := m.pool.OpenDevice(m.ctx(), backend.DeviceRequest{VolumeID: idOf(volumePrefix, name)})
	m.want(err, nil)
	volume := m.volumes[name]
	// A device that was attached while the volume was thick stays without discard.
	// On btrfs none has it (see Pool.discards).
	desired := volume.provisioning == thin && !m.pool.copyOnWrite
	discards := device.Discard == desired || (volume.kept && !device.Discard)
	if device.Size != volume.size || !discards {
		m.Fatalf("the device of %s volume %s: %+v; want %d bytes", volume.provisioning, name, *device, volume.size)
	}
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	m.want(err, nil)
	use(file)
	m.want(errors.Join(file.Close(), device.Release()), nil)
}

func (m *model) verify() {
	name := m.drawVolume()
	if m.volumes[name] != nil {
		m.wantContent(name)
	}
}

func (m *model) wantContent(name string) {
	m.Helper()
	m.withDevice(name, func(file *os.File) {
		cells := m.volumes[name].cells
		data := make([]byte, len(cells)*cellSize)
		_, err := file.ReadAt(data, 0)
		m.want(err, nil)
		for i, value := range cells {
			if cell := data[i*cellSize : (i+1)*cellSize]; !bytes.Equal(cell, bytes.Repeat([]byte{value}, cellSize)) {
				m.Fatalf("volume %s, cell %d is not filled with %d, it begins with %d", name, i, value, cell[0])
			}
		}
	})
}

func (m *model) attach() {
	name := m.drawVolume()
	volume := m.volumes[name]
	var sentinel error
	if volume == nil {
		sentinel = backend.ErrNotFound
	}
	device, err := m.pool.OpenDevice(m.ctx(), backend.DeviceRequest{VolumeID: idOf(volumePrefix, name), Keep: true})
	if m.want(err, sentinel) {
		volume.kept = true
		m.want(device.Release(), nil)
	}
}

func (m *model) detach() {
	name := m.drawVolume()
	m.want(m.pool.CloseDevice(m.ctx(), idOf(volumePrefix, name)), nil)
	if volume := m.volumes[name]; volume != nil {
		volume.kept = false
	}
}

func (m *model) reopen() {
	m.want(m.pool.Close(), nil)
	m.open()
}

// measure does what the pool does in the background.
func (m *model) measure() {
	_, err := m.pool.observe(m.ctx())
	m.want(err, nil)
	m.unmeasured = 0
}

// wantCurrentLedger checks that creations, growth and deletions are in the ledger without
// a measurement. ext4 alone frees the blocks of a deleted file at once. A measurement in
// the middle of a creation counts its blocks twice, until the next one.
func (m *model) wantCurrentLedger() {
	m.Helper()
	if m.pool.reflink.Load() {
		return
	}
	kept, measured, _, err := keptAndMeasured(m.pool)
	m.want(err, nil)
	const noise = 4 * mebibyte // records, directories and roundings since the last measurement
	if kept < measured-m.unmeasured-noise {
		m.Fatalf("the ledger promises %d bytes; a measurement shows %d, of which %d are not known yet", kept, measured, m.unmeasured)
	}
}

func (m *model) inlineLife() {
	handle := "csi-" + string(bytes.Repeat([]byte(m.draw("handle", "0", "1")), 64))
	if m.inline[handle] && rapid.Bool().Draw(m.T, "storage fails") {
		m.inlineFails(handle)
		return
	}
	if m.inline[handle] {
		m.want(m.pool.DeleteEphemeral(m.ctx(), handle), nil)
		delete(m.inline, handle)
		return
	}
	_, err := m.pool.CreateEphemeral(m.ctx(), backend.EphemeralSpec{
		Handle: handle, Target: "/target", Attributes: map[string]string{attributeSize: "1Mi"},
	})
	m.want(err, nil)
	m.inline[handle] = true
}

// wantListings compares everything that can be listed, after every operation.
func (m *model) wantListings() {
	m.Helper()
	volumes, err := m.pool.Volumes(m.ctx(), "", 0)
	m.want(err, nil)
	if len(volumes) != len(m.volumes) {
		m.Fatalf("%d volumes; want %d", len(volumes), len(m.volumes))
	}
	for _, v := range volumes {
		if want := m.volumes[v.Name]; want == nil || want.size != v.Size {
			m.Fatalf("volume %+v; want %+v", v, want)
		}
	}
	members := 0
	for name, group := range m.groups {
		got, err := m.pool.GroupByName(m.ctx(), name)
		if m.want(err, nil); len(got.Snapshots) != len(group) {
			m.Fatalf("group %s has %d members; want %d", name, len(got.Snapshots), len(group))
		}
		members += len(group)
	}
	snapshots, err := m.pool.Snapshots(m.ctx(), backend.SnapshotFilter{}, "", 0)
	if m.want(err, nil); len(snapshots) != len(m.snapshots)+members {
		m.Fatalf("%d snapshots; want %d and %d members of groups", len(snapshots), len(m.snapshots), members)
	}
	inline, err := m.pool.Ephemerals(m.ctx())
	if m.want(err, nil); len(inline) != len(m.inline) {
		m.Fatalf("%d inline volumes; want %d", len(inline), len(m.inline))
	}
}
