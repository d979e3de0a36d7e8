package windows

import (
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Check finds what contradicts itself: a check that passes everything would let
// the model's tests pass as well.
func TestCheck_findsContradictions(t *testing.T) {
	for name, corrupt := range map[string]func(m *Machine, d *disk){
		"two disks of one number":     func(_ *Machine, d *disk) { d.number = 0 },
		"partitions that overlap":     func(_ *Machine, d *disk) { d.table.partitions[1].Offset -= 512 },
		"more than the disk has":      func(_ *Machine, d *disk) { d.known = d.size + 512 },
		"a volume of an offline disk": func(_ *Machine, d *disk) { d.attributes = win32.DiskAttributeOffline },
		"two volumes of one name": func(m *Machine, d *disk) {
			d.table.partitions[1].volume.name = m.disks[0].table.partitions[1].volume.name
		},
		"more than the volume has":       func(_ *Machine, d *disk) { d.filesystems[17<<20].used = 2 << 30 },
		"a handle without an owner":      func(_ *Machine, d *disk) { d.filesystems[17<<20].root.open++ },
		"a pin without an owner":         func(_ *Machine, d *disk) { d.filesystems[17<<20].root.pins++ },
		"an entry under another name":    func(_ *Machine, d *disk) { d.filesystems[17<<20].root.children["A"].name = "b" },
		"an entry of another directory":  func(_ *Machine, d *disk) { d.filesystems[17<<20].root.children["A"].parent = nil },
		"a reparse point with children":  func(_ *Machine, d *disk) { d.filesystems[17<<20].root.children["A"].reparse = []byte{} },
		"a filesystem of another volume": func(_ *Machine, d *disk) { d.filesystems[17<<20].volume = nil },
		"a lock without an owner":        func(_ *Machine, d *disk) { d.table.partitions[1].volume.lock = &device{} },
		"two users of a server": func(m *Machine, _ *disk) {
			m.mappings = []*mapping{
				{server: "s", user: "a"}, {server: "S", user: "b"},
			}
		},
		"a disk of no session":              func(_ *Machine, d *disk) { d.session = &session{} },
		"a service in no state":             func(m *Machine, _ *disk) { m.services[0].state = 9 },
		"a mounted folder without a record": func(m *Machine, _ *disk) { clear(m.mounted) },
		"a counted handle that is closed": func(m *Machine, d *disk) {
			d.table.partitions[1].volume.devices = map[*device]struct{}{{c: &client{m: m}}: {}}
		},
	} {
		m := New(Options{})
		number := m.MustAddDisk(DiskSpec{Serial: "a", Size: 1 << 30, Style: "data", FileSystem: ntfs, DriveLetter: true})
		for _, path := range []string{`D:\a\b`, `C:\mounted`} {
			if err := m.MkdirAll(path); err != nil {
				t.Fatal(err)
			}
		}
		d := m.disk(number)
		if err := m.Calls().Volumes.SetMountPoint(`C:\mounted\`, d.table.partitions[1].volume.name); err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Fatalf("%s: before: %v", name, err)
		}
		corrupt(m, d)
		if err := m.Check(); err == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
