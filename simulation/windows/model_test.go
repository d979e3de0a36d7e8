package windows_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// process is one of two that do anything at all to a machine.
type process struct {
	calls       win32.Machine
	devices     []win32.Device
	directories []win32.Directory
}

// anything is a machine to which anything happens, by calls and from outside.
type anything struct {
	m         *windows.Machine
	processes [2]*process
	open      []*windows.OpenFile
}

func newAnything(t *rapid.T) *anything {
	m := windows.New(windows.Options{
		UsableLag: 1, DeletePending: rapid.Bool().Draw(t, "delete pending"), SessionBusy: time.Millisecond, FormatDelay: time.Millisecond,
	})
	a := &anything{m: m}
	for i := range a.processes {
		a.processes[i] = &process{calls: m.Calls()}
	}
	_ = m.AddShare(windows.SMBShare{Server: "s", Share: "x", Users: map[string]string{"a": "a", "b": "b"}})
	_ = m.AddTarget(windows.ISCSITarget{Portal: portal, IQN: iqn, LUNs: []windows.DiskSpec{{Serial: "lun", Size: gibi}}})
	return a
}

func pick[T any](t *rapid.T, what string, list []T) T { return rapid.SampledFrom(list).Draw(t, what) }

var (
	somePaths = []string{`C:\a`, `C:\a\b`, `C:\b`, `C:\a\b\c`, `C:\long name`, `D:\x`, `C:\b\x`, `\\s\x`}
	someNames = []string{"a", "b", "c", "A", "long name", "LONGNA~1", "x.", "", "half\xed\xa0\x80"}
	someCodes = []win32.ControlCode{
		win32.IoctlStorageGetDeviceNumber, win32.IoctlStorageQueryProperty, win32.IoctlDiskGetDriveLayoutEx,
		win32.IoctlDiskUpdateProperties, win32.IoctlDiskUpdateDriveSize, win32.IoctlDiskSetDriveLayoutEx,
		win32.IoctlDiskCreateDisk, win32.IoctlDiskGrowPartition,
		win32.IoctlDiskSetDiskAttributes, win32.IoctlVolumeGetVolumeDiskExtents, win32.FsctlLockVolume, win32.FsctlUnlockVolume,
		win32.FsctlDismountVolume, win32.FsctlExtendVolume, win32.FsctlGetNTFSVolumeData,
	}
)

// layout is a table of a few partitions, sometimes one that cannot be.
func drawLayout(t *rapid.T) []byte {
	layout := win32.DriveLayout{Style: win32.StyleGPT}
	at := int64(1 << 20)
	for i := range rapid.IntRange(0, 3).Draw(t, "partitions") {
		length := rapid.Int64Range(-1, 8).Draw(t, "length") * (32 << 20)
		layout.Partitions = append(layout.Partitions, win32.Partition{
			Style: win32.StyleGPT, Offset: at, Length: length, Rewrite: rapid.Bool().Draw(t, "rewrite"),
			Type: win32.PartitionBasicData, ID: win32.GUID{byte(i + 1)}, Attributes: uint64(rapid.IntRange(0, 1).Draw(t, "letter")) << 63,
		})
		at += max(length, 0) + rapid.Int64Range(-1, 1).Draw(t, "gap")*(1<<20)
	}
	return layout.Encode()
}

// input is a valid input of a control code, or any bytes.
func input(t *rapid.T, code win32.ControlCode) []byte {
	if rapid.IntRange(0, 9).Draw(t, "garbage") == 0 {
		return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
	}
	switch code {
	case win32.IoctlDiskSetDriveLayoutEx:
		return drawLayout(t)
	case win32.IoctlDiskCreateDisk:
		return win32.CreateDisk{
			Style: win32.PartitionStyle(rapid.IntRange(0, 3).Draw(t, "style")), DiskID: win32.NewGUID(), MaxPartitions: 128,
		}.Encode()
	case win32.IoctlDiskGrowPartition:
		return win32.GrowPartition{
			Number: uint32(rapid.IntRange(1, 3).Draw(t, "number")), Bytes: rapid.Int64Range(0, 4).Draw(t, "by") << 25,
		}.Encode()
	case win32.IoctlDiskSetDiskAttributes:
		return win32.SetDiskAttributes{Mask: 3, Attributes: uint64(rapid.IntRange(0, 3).Draw(t, "attributes"))}.Encode()
	case win32.FsctlExtendVolume:
		return win32.ExtendVolume{Sectors: rapid.Int64Range(0, 24).Draw(t, "sectors") << 16}.Encode()
	}
	return nil
}

// outside does something to the machine from outside.
func (a *anything) outside(t *rapid.T) {
	path, other := pick(t, "path", somePaths), pick(t, "other", somePaths)
	number := uint32(rapid.IntRange(0, 5).Draw(t, "disk"))
	switch rapid.IntRange(0, 13).Draw(t, "happens") {
	case 0:
		spec := windows.DiskSpec{
			Serial: fmt.Sprint(number), Size: gibi, Bus: pick(t, "bus", []uint32{win32.BusSAS, win32.BusNVMe}),
			Style: pick(t, "style", []string{"", "mbr", "gpt", "data", "data"}), DriveLetter: rapid.Bool().Draw(t, "letter"),
		}
		if spec.Style == "data" {
			spec.FileSystem, spec.DataSize = "NTFS", 512<<20
		}
		_, _ = a.m.AddDisk(spec)
	case 1:
		_ = a.m.RemoveDisk(number)
	case 2:
		_, _ = a.m.MoveDisk(number)
	case 3:
		_ = a.m.GrowDisk(number, rapid.Int64Range(1, 4).Draw(t, "size")<<30)
	case 4:
		_ = a.m.MkdirAll(path)
	case 5:
		_ = a.m.WriteFile(path, rapid.Int64Range(0, 2<<30).Draw(t, "size"))
	case 6:
		_ = a.m.Symlink(path, other, rapid.Bool().Draw(t, "dir"))
	case 7:
		_ = a.m.Junction(path, other)
	case 8:
		_ = a.m.Rename(path, other)
	case 9:
		_ = a.m.Remove(path)
	case 10:
		if f, err := a.m.Open(path, rapid.Bool().Draw(t, "share")); err == nil {
			a.open = append(a.open, f)
		}
	case 11:
		if len(a.open) > 0 {
			a.open[0].Close()
			a.open = a.open[1:]
		}
	case 12:
		a.m.Reboot()
	case 13:
		_ = a.m.SetReparse(path, win32.NewMountPoint(other))
	}
}

// devicesOf does something with disks and volumes.
func (a *anything) devicesOf(t *rapid.T, p *process) {
	if len(p.devices) > 0 && rapid.Bool().Draw(t, "use") {
		d := p.devices[rapid.IntRange(0, len(p.devices)-1).Draw(t, "handle")]
		code := pick(t, "code", someCodes)
		_, _ = d.Control(code, input(t, code), make([]byte, rapid.IntRange(0, 600).Draw(t, "room")))
		_, _ = d.ReadAt(make([]byte, 512), rapid.Int64Range(-1, 3<<21).Draw(t, "at")*512)
		if rapid.IntRange(0, 4).Draw(t, "close") == 0 {
			_ = d.Close()
		}
		return
	}
	access := win32.Access(rapid.IntRange(0, 2).Draw(t, "access"))
	d, err := p.calls.Devices.OpenDisk(uint32(rapid.IntRange(0, 5).Draw(t, "number")), access)
	if names, _ := p.calls.Volumes.All(); len(names) > 0 && rapid.Bool().Draw(t, "volume") {
		d, err = p.calls.Volumes.Open(pick(t, "name", names), access)
	}
	if err == nil {
		p.devices = append(p.devices, d)
	}
}

// volumesOf mounts, unmounts and formats.
func (a *anything) volumesOf(t *rapid.T, p *process) {
	names, _ := p.calls.Volumes.All()
	if len(names) == 0 {
		return
	}
	name, path := pick(t, "name", names), pick(t, "path", somePaths)+`\`
	switch rapid.IntRange(0, 5).Draw(t, "volumes") {
	case 0:
		_ = p.calls.Volumes.Format(t.Context(), name, win32.FormatRequest{FileSystem: pick(t, "kind", []string{"NTFS", "FAT32", "ReFS"})})
	case 1:
		_ = p.calls.Volumes.SetMountPoint(path, name)
	case 2:
		_ = p.calls.Volumes.DeleteMountPoint(path)
	case 3:
		_, _ = p.calls.Volumes.MountPoint(path)
	case 4:
		_, _ = p.calls.Volumes.PathNames(name)
	case 5:
		_, _ = p.calls.Volumes.FreeSpace(path)
	}
}

// filesOf walks and changes directories.
func (a *anything) filesOf(t *rapid.T, p *process) {
	if len(p.directories) == 0 || rapid.IntRange(0, 4).Draw(t, "root") == 0 {
		if d, err := p.calls.Files.OpenRoot(pick(t, "path", append(somePaths, `C:\`))); err == nil {
			p.directories = append(p.directories, d)
		}
		return
	}
	d, name := p.directories[rapid.IntRange(0, len(p.directories)-1).Draw(t, "directory")], pick(t, "entry", someNames)
	var opened win32.Directory
	var err error
	switch rapid.IntRange(0, 7).Draw(t, "files") {
	case 0:
		_ = d.Mkdir(name)
	case 1:
		_ = d.Remove(name)
	case 2:
		_ = d.Symlink(name, pick(t, "target", somePaths))
	case 3:
		opened, err = d.Open(name)
	case 4:
		opened, err = d.OpenMounted(name)
	case 5:
		_ = d.Close()
	case 6:
		_, _ = d.List()
		_, _ = d.Path()
	case 7:
		_, _ = d.Reparse(name)
	}
	if err == nil && opened != nil {
		p.directories = append(p.directories, opened)
	}
}

// networkOf maps shares and makes sessions.
func (a *anything) networkOf(t *rapid.T, p *process) {
	user := pick(t, "user", []string{"a", "b", "c"})
	switch rapid.IntRange(0, 4).Draw(t, "network") {
	case 0:
		_ = p.calls.SMB.Create(t.Context(), win32.SMBMappingRequest{Remote: `\\s\x`, Username: user, Password: api.Secret(user)})
	case 1:
		_ = p.calls.SMB.Remove(t.Context(), `\\s\x`, rapid.Bool().Draw(t, "force"))
	case 2:
		_ = p.calls.Services.Start("MSiSCSI")
		_ = p.calls.ISCSI.AddPortal(t.Context(), portal)
		login := api.ISCSILogin{Portal: portal, IQN: iqn}
		_, _ = p.calls.ISCSI.Login(t.Context(), login)
		if rapid.Bool().Draw(t, "persistent") {
			_ = p.calls.ISCSI.Persist(t.Context(), login)
		}
	case 3:
		sessions, _ := p.calls.ISCSI.Sessions(t.Context())
		for _, s := range sessions {
			_ = p.calls.ISCSI.Logout(t.Context(), s.ID)
		}
	case 4:
		_ = p.calls.Services.Stop("MSiSCSI")
	}
}

// die ends a process, and begins another.
func (a *anything) die(t *rapid.T) {
	a.m.EndProcesses()
	if n := a.m.OpenHandles(); n != 0 {
		t.Fatalf("%d handles are open after all processes ended", n)
	}
	for i := range a.processes {
		a.processes[i] = &process{calls: a.m.Calls()}
	}
}

// Whatever two processes and the world do to the machine, it does not contradict
// itself.
func TestMachine_neverContradictsItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAnything(t)
		act := func(f func(*rapid.T, *process)) func(*rapid.T) {
			return func(t *rapid.T) { f(t, a.processes[rapid.IntRange(0, 1).Draw(t, "process")]) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"outside": a.outside, "devices": act(a.devicesOf), "volumes": act(a.volumesOf), "files": act(a.filesOf),
			"network": act(a.networkOf), "die": a.die,
			"": func(t *rapid.T) {
				if err := a.m.Check(); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// All calls may be made at once.
func TestMachine_servesManyAtOnce(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	var wait sync.WaitGroup
	for i := range 16 {
		number := m.MustAddDisk(windows.DiskSpec{Serial: fmt.Sprint(i), Size: gibi})
		wait.Go(func() {
			volume := formatted(t, calls, number)
			path := fmt.Sprintf(`C:\var\lib\kubelet\plugins\%d`, i)
			must(t, m.MkdirAll(path))
			must(t, calls.Volumes.SetMountPoint(path+`\`, volume))
			d, err := calls.Files.OpenRoot(path)
			must(t, err)
			must(t, d.Mkdir("x"))
			must(t, d.Close())
			must(t, m.Check())
		})
	}
	wait.Wait()
	if losses := m.Losses(); losses != nil {
		t.Errorf("lost: %q", losses)
	}
}

// Any code with any bytes is answered, by disks and by volumes.
func FuzzControl(f *testing.F) {
	for _, code := range someCodes {
		f.Add(uint32(code), make([]byte, 48), uint16(200))
	}
	f.Add(uint32(win32.IoctlDiskSetDriveLayoutEx), win32.DriveLayout{Style: win32.StyleGPT, Partitions: []win32.Partition{
		{Style: win32.StyleGPT, Offset: 1 << 62, Length: 1 << 62, Rewrite: true, Type: win32.PartitionBasicData},
	}}.Encode(), uint16(0))
	f.Add(uint32(win32.FsctlExtendVolume), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint16(0))
	m := windows.New(windows.Options{})
	calls := m.Calls()
	f.Fuzz(func(t *testing.T, code uint32, in []byte, room uint16) {
		number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: 256 << 20, Style: "data", FileSystem: "NTFS"})
		defer func() { must(t, m.RemoveDisk(number)) }()
		names, err := calls.Volumes.All()
		must(t, err)
		v, err := calls.Volumes.Open(names[len(names)-1], win32.ReadWrite)
		must(t, err)
		defer v.Close()
		for _, d := range []win32.Device{openDisk(t, calls, number), v} {
			out := make([]byte, room)
			if n, _ := d.Control(win32.ControlCode(code), in, out); n < 0 || n > len(out) {
				t.Errorf("%d bytes in room for %d", n, len(out))
			}
		}
		must(t, m.Check())
	})
}
