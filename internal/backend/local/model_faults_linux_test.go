package local

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
)

// underFault runs one call of which one system call fails, or one and all that
// follow. The outcome of a failed call is unknown: the model continues with the state
// that the pool shows, in this process or in the next one. That state must be
// consistent.
func (m *model) underFault() {
	errno := rapid.SampledFrom([]unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS}).Draw(m.T, "errno")
	calls := map[string]struct {
		most int // system calls of it, about
		make func(plan syscallfault.Plan)
	}{
		"create": {50, m.faultyCreate}, "delete": {25, m.faultyDelete}, "snapshot": {75, m.faultySnapshot},
		"delete snapshot": {20, m.faultyDeleteSnapshot}, "group": {190, m.faultyGroup}, "delete group": {60, m.faultyDeleteGroup},
		"expand": {45, m.faultyExpand}, "open": {60, m.faultyOpen},
	}
	call := calls[m.draw("call", slices.Sorted(maps.Keys(calls))...)]
	number := rapid.IntRange(1, call.most).Draw(m.T, "number")
	plan := syscallfault.Once(number, errno)
	if rapid.Bool().Draw(m.T, "from there on") {
		plan = syscallfault.From(number, errno)
	}
	call.make(plan)
}

// drawFrom draws one of the names that fit; "" when none does.
func (m *model) drawFrom(names []string, fits func(name string) bool) string {
	names = slices.DeleteFunc(names, func(name string) bool { return !fits(name) })
	if len(names) == 0 {
		return ""
	}
	return m.draw("name", names...)
}

// run executes the call and, if drawn so, a restart. System calls on the devices
// fail as those on the pool do. It returns the error of the call.
func (m *model) run(plan syscallfault.Plan, call func() error, devices ...string) error {
	m.Helper()
	var failure error
	_, err := syscallfault.Run(append(devices, m.dir), plan, func() { failure = call() })
	m.want(err, nil)
	if rapid.Bool().Draw(m.T, "restart") {
		m.reopen()
	}
	wantAgreement(m.ctx(), m.T, m.pool, "after a call that answered "+errorText(failure))
	return failure
}

func errorText(err error) string {
	if err == nil {
		return "OK"
	}
	return err.Error()
}

// shown reports whether the pool has something, by the error of its lookup. A
// call that succeeded must show its effect.
func (m *model) shown(failure, lookup error, effect bool) bool {
	m.Helper()
	exists := lookup == nil
	if !exists && !errors.Is(lookup, backend.ErrNotFound) {
		m.Fatalf("lookup: %v", lookup)
	}
	if failure == nil && exists != effect {
		m.Fatalf("the call answered OK and its effect is not there: exists %t", exists)
	}
	return exists
}

func (m *model) faultyCreate(plan syscallfault.Plan) {
	name := m.drawFrom([]string{"a", "b", "c", "d", "e"}, func(name string) bool { return m.volumes[name] == nil })
	if name == "" {
		return
	}
	request := guard.CreateRequest{
		Name: name, Range: backend.SizeRange{Required: m.drawSize()},
		Parameters:   map[string]string{parameterProvisioning: m.draw("provisioning", thin, thick)},
		Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter, Block: true}},
	}
	err := m.run(plan, func() error { _, err := m.guard.CreateVolume(m.ctx(), request); return err })
	volume, lookup := m.pool.VolumeByName(m.ctx(), name)
	if m.shown(err, lookup, true) {
		m.volumes[name] = &modelVolume{
			size: volume.Size, asked: request, provisioning: request.Parameters[parameterProvisioning], cells: make([]byte, volume.Size/cellSize),
		}
		m.wantContent(name)
	}
}

// faultyDelete draws volumes that are in use, too: they stay even if a step fails.
func (m *model) faultyDelete(plan syscallfault.Plan) {
	name := m.drawFrom(slices.Sorted(maps.Keys(m.volumes)), func(string) bool { return true })
	if name == "" {
		return
	}
	id := idOf(volumePrefix, name)
	if m.volumes[name].kept {
		m.faultyDeleteInUse(id, plan)
		m.wantContent(name)
		return
	}
	err := m.run(plan, func() error { return m.guard.DeleteVolume(m.ctx(), id) })
	if _, lookup := m.pool.Volume(m.ctx(), id); !m.shown(err, lookup, false) {
		delete(m.volumes, name)
	}
}

func (m *model) faultyDeleteInUse(id string, plan syscallfault.Plan) {
	devices, err := m.pool.Devices(m.ctx(), id)
	if m.want(err, nil); len(devices) != 1 {
		m.Fatalf("devices of %s: %+v", id, devices)
	}
	if m.run(plan, func() error { return m.guard.DeleteVolume(m.ctx(), id) }, devices[0].Path) == nil {
		m.Fatalf("%s was deleted, and it is in use", id)
	}
	_, err = m.pool.Volume(m.ctx(), id)
	m.want(err, nil)
}

func (m *model) faultySnapshot(plan syscallfault.Plan) {
	name := m.drawFrom([]string{"s", "t", "u"}, func(name string) bool { return m.snapshots[name] == nil })
	source := m.drawFrom(slices.Sorted(maps.Keys(m.volumes)), func(name string) bool { return !m.volumes[name].kept })
	if name == "" || source == "" {
		return
	}
	volume := m.volumes[source]
	sourceID := idOf(volumePrefix, source)
	err := m.run(plan, func() error {
		_, err := m.guard.CreateSnapshot(m.ctx(), backend.SnapshotSpec{Name: name, SourceID: sourceID})
		return err
	})
	if _, lookup := m.pool.SnapshotByName(m.ctx(), name); m.shown(err, lookup, true) {
		m.snapshots[name] = &modelSnapshot{source: sourceID, cells: slices.Clone(volume.cells)}
	}
}

func (m *model) faultyDeleteSnapshot(plan syscallfault.Plan) {
	name := m.drawFrom(slices.Sorted(maps.Keys(m.snapshots)), func(string) bool { return true })
	if name == "" {
		return
	}
	err := m.run(plan, func() error { return m.guard.DeleteSnapshot(m.ctx(), idOf(snapshotPrefix, name)) })
	if _, lookup := m.pool.SnapshotByName(m.ctx(), name); !m.shown(err, lookup, false) {
		delete(m.snapshots, name)
	}
}

func (m *model) faultyGroup(plan syscallfault.Plan) {
	name := m.drawGroup()
	desired := modelGroup{}
	for source, volume := range m.volumes {
		if !volume.kept {
			desired[idOf(volumePrefix, source)] = slices.Clone(volume.cells)
		}
	}
	if m.groups[name] != nil || len(desired) == 0 {
		return
	}
	spec := backend.GroupSnapshotSpec{Name: name, SourceIDs: slices.Sorted(maps.Keys(desired))}
	err := m.run(plan, func() error { _, err := m.guard.CreateGroup(m.ctx(), spec); return err })
	if _, lookup := m.pool.GroupByName(m.ctx(), name); m.shown(err, lookup, true) {
		m.groups[name] = desired
	}
}

func (m *model) faultyDeleteGroup(plan syscallfault.Plan) {
	name := m.drawGroup()
	if m.groups[name] == nil {
		return
	}
	err := m.run(plan, func() error { return m.guard.DeleteGroup(m.ctx(), idOf(groupPrefix, name), nil) })
	if _, lookup := m.pool.GroupByName(m.ctx(), name); !m.shown(err, lookup, false) {
		delete(m.groups, name)
	}
}

func (m *model) faultyExpand(plan syscallfault.Plan) {
	name, size := m.drawVolume(), m.drawSize()+mebibyte
	volume := m.volumes[name]
	if volume == nil {
		return
	}
	id := idOf(volumePrefix, name)
	err := m.run(plan, func() error {
		_, err := m.guard.Expand(m.ctx(), id, backend.SizeRange{Required: size})
		return err
	})
	now, lookup := m.pool.Volume(m.ctx(), id)
	if m.want(lookup, nil); err == nil && now.Size < size || now.Size < volume.size {
		m.Fatalf("volume %s has %d bytes after it had %d and %d were asked for: %v", name, now.Size, volume.size, size, err)
	}
	volume.size = now.Size
	volume.cells = append(volume.cells, make([]byte, volume.size/cellSize-int64(len(volume.cells)))...)
	_, err = m.pool.ResizeDevice(m.ctx(), id)
	m.want(err, nil)
}

// faultyOpen starts the pool with a fault, and then without.
func (m *model) faultyOpen(plan syscallfault.Plan) {
	m.want(m.pool.Close(), nil)
	_, err := syscallfault.Run([]string{m.dir}, plan, func() {
		if pool, err := Open(m.ctx(), Options{Pool: m.dir, NodeID: "node-1"}); err == nil {
			_ = pool.Close() // with the fault, too
		}
	})
	m.want(err, nil)
	m.open()
	wantAgreement(m.ctx(), m.T, m.pool, "after a start with a fault")
}

// readOnly starts the pool on a read-only filesystem, which takes writes again
// while the pool is open.
func (m *model) readOnly() {
	for _, volume := range m.volumes {
		if volume.kept {
			return // its device has the file open for writing
		}
	}
	m.want(m.pool.Close(), nil)
	m.want(remountIdle(m.base, unix.MS_RDONLY), nil)
	m.open()
	m.wantListings()
	if capacity, err := m.pool.Capacity(m.ctx(), nil, nil); err != nil || capacity.Available != 0 {
		m.Fatalf("capacity of a read-only pool: %+v, %v", capacity, err)
	}
	_, err := m.pool.CreateVolume(m.ctx(), spec("refused", mebibyte))
	m.want(err, backend.ErrUnavailable)
	m.want(remountIdle(m.base, 0), nil)
	recovered(m.T, m.pool)
}

// wantAttached waits for devices that are going: a program between fork and exec
// keeps a loop device after its last user.
func (m *model) wantAttached(name string, attached bool) {
	var devices []backend.Device
	for range 1000 {
		var err error
		devices, err = m.pool.Devices(m.ctx(), idOf(volumePrefix, name))
		if m.want(err, nil); attached == (len(devices) == 1) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.Fatalf("a pool that failed lists devices %+v of %s; attached: %t", devices, name, attached)
}

// failedPool has the pool fail and its cause go. Until it is open again no call
// waits for another one, nor longer than its context lasts.
func (m *model) failedPool() {
	m.pool = failAndRepair(m.T, m.pool)
	for name, volume := range m.volumes {
		m.wantAttached(name, volume.kept)
	}
	wantAnswersWhileFrozen(m.T, m.pool)
	recovered(m.T, m.pool)
	m.reopen()
}

// remountIdle waits for devices that just lose their last user.
func remountIdle(dir string, flags uintptr) error {
	for try := 0; ; try++ {
		err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "")
		if !errors.Is(err, unix.EBUSY) || try == 1000 {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// damage starts the pool with a record that cannot be used: only calls for its
// volume fail, which can still be detached. With the record restored it is back.
func (m *model) damage() {
	name := m.drawVolume()
	volume := m.volumes[name]
	if volume == nil {
		return
	}
	id := idOf(volumePrefix, name)
	path := filepath.Join(m.dir, volumesDir, id, volumeFile)
	sound, err := os.ReadFile(path)
	m.want(err, nil)
	m.want(m.pool.Close(), nil)
	damages := map[string]func() error{
		"empty":        func() error { return os.Truncate(path, 0) },
		"missing":      func() error { return os.Remove(path) },
		"a named pipe": func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	}
	m.want(damages[m.draw("damage", slices.Sorted(maps.Keys(damages))...)](), nil)
	m.open()
	if _, err := m.pool.Volume(m.ctx(), id); err != nil && errors.Is(err, backend.ErrNotFound) {
		m.Fatalf("volume %s is not found because its record is damaged", name)
	}
	m.want(m.pool.CloseDevice(m.ctx(), id), nil)
	volume.kept = false
	m.want(m.pool.Close(), nil)
	_ = os.Remove(path)
	m.want(os.WriteFile(path, sound, 0o600), nil)
	m.open()
}

// deleteWhenFull removes something from a pool without a free block.
func (m *model) deleteWhenFull() {
	before, err := roomOf(m.pool.top)
	m.want(err, nil)
	ballast := filepath.Join(m.base, "ballast")
	file, err := os.Create(ballast)
	m.want(err, nil)
	defer func() {
		_ = errors.Join(file.Close(), os.Remove(ballast))
		m.awaitRoom(before.available)
	}()
	for size, at := int64(256*mebibyte), int64(0); size >= 4096; {
		if unix.Fallocate(descriptor(file), 0, at, size) == nil {
			at += size
		} else {
			size /= 2
		}
	}
	for _, remove := range []func(){m.deleteGroup, m.deleteSnapshot, m.delete} {
		remove()
	}
}

// awaitRoom waits for the blocks of a removed file: a program between fork and exec has a
// copy of each descriptor, and btrfs frees blocks when it commits.
func (m *model) awaitRoom(bytes int64) {
	m.Helper()
	for range 1000 {
		m.want(unix.Syncfs(descriptor(m.pool.top)), nil)
		now, err := roomOf(m.pool.top)
		if m.want(err, nil); now.available > bytes/2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.Fatal("the blocks of a removed file are not free")
}

// wantCapacity creates a volume of the offered capacity, with all its blocks.
func (m *model) wantCapacity() {
	m.Helper()
	parameters := map[string]string{parameterProvisioning: thick}
	capacity, err := m.pool.Capacity(m.ctx(), parameters, nil)
	if m.want(err, nil); capacity.MaximumVolumeSize == 0 {
		return
	}
	volume, err := m.pool.CreateVolume(m.ctx(), backend.VolumeSpec{Name: "all", Size: capacity.MaximumVolumeSize, Parameters: parameters})
	m.want(err, nil)
	m.want(m.pool.DeleteVolume(m.ctx(), volume.ID), nil)
}

// inlineFails makes the storage of an inline volume fail permanently: of its record
// alone, or of the pool. Its pod can leave all the same.
func (m *model) inlineFails(handle string) {
	id := idOf(ephemeralPrefix, handle)
	below := m.draw("what fails", m.dir, filepath.Join(m.dir, volumePath(id)), filepath.Join(m.dir, volumePath(id), volumeFile))
	errno := rapid.SampledFrom([]unix.Errno{unix.EIO, unix.EUCLEAN, unix.ESHUTDOWN}).Draw(m.T, "error")
	number := rapid.IntRange(1, 30).Draw(m.T, "number")
	deleted := false
	_, err := syscallfault.Run([]string{below}, syscallfault.From(number, errno), func() { deleted = unpublished(m.T, m.pool, handle) })
	m.want(err, nil)
	m.reopen()
	_, err = m.pool.EphemeralByHandle(m.ctx(), handle)
	if exists := err == nil; exists && deleted {
		m.Fatalf("the inline volume was deleted and is there after a restart")
	}
	m.inline[handle] = err == nil
	if !m.inline[handle] {
		m.want(err, backend.ErrNotFound)
		delete(m.inline, handle)
	}
}
