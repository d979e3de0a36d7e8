package windows_test

import (
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// control is DeviceIoControl with a buffer that is large enough.
func control(t *testing.T, d win32.Device, code win32.ControlCode, in []byte) []byte {
	t.Helper()
	out := make([]byte, 64<<10)
	n, err := d.Control(code, in, out)
	if err != nil {
		t.Fatalf("%v: %v", code, err)
	}
	return out[:n]
}

func openDisk(t *testing.T, calls win32.Machine, number uint32) win32.Device {
	t.Helper()
	d, err := calls.Devices.OpenDisk(number, win32.ReadWrite)
	if err != nil {
		t.Fatalf("open disk %d: %v", number, err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func layoutOf(t *testing.T, d win32.Device) win32.DriveLayout {
	t.Helper()
	layout, err := win32.DecodeDriveLayout(control(t, d, win32.IoctlDiskGetDriveLayoutEx, nil))
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// partitioned writes a GPT with one data partition of all space to a blank disk.
func partitioned(t *testing.T, calls win32.Machine, number uint32) (volume string) {
	t.Helper()
	d := openDisk(t, calls, number)
	control(t, d, win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{
		Persist: true, Mask: win32.DiskAttributeOffline | win32.DiskAttributeReadOnly,
	}.Encode())
	control(t, d, win32.IoctlDiskCreateDisk, win32.CreateDisk{Style: win32.StyleGPT, DiskID: win32.NewGUID(), MaxPartitions: 128}.Encode())
	layout := layoutOf(t, d)
	end := (layout.UsableOffset + layout.UsableLength) &^ (1<<20 - 1)
	id := win32.NewGUID()
	layout.Partitions = []win32.Partition{
		{Style: win32.StyleGPT, Offset: 1 << 20, Length: 16 << 20, Rewrite: true, Type: win32.PartitionReserved, ID: win32.NewGUID()},
		{
			Style: win32.StyleGPT, Offset: 17 << 20, Length: end - 17<<20, Rewrite: true,
			Type: win32.PartitionBasicData, ID: id, Attributes: win32.GPTNoDriveLetter,
		},
	}
	control(t, d, win32.IoctlDiskSetDriveLayoutEx, layout.Encode())
	return `\\?\Volume` + id.String() + `\`
}

func formatted(t *testing.T, calls win32.Machine, number uint32) (volume string) {
	t.Helper()
	volume = partitioned(t, calls, number)
	if err := calls.Volumes.Format(t.Context(), volume, win32.FormatRequest{FileSystem: "NTFS"}); err != nil {
		t.Fatalf("format: %v", err)
	}
	return volume
}

func TestMachine_takesABlankDiskToAMountedFolder(t *testing.T) {
	m := windows.New(windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "vol0", Size: 1 << 30, Bus: win32.BusSAS})
	calls := m.Calls()
	volume := partitioned(t, calls, number)
	_, err := calls.Volumes.Information(volume)
	refused(t, "a raw volume", err, win32.ErrorUnrecognizedVolume)
	if err := calls.Volumes.Format(t.Context(), volume, win32.FormatRequest{FileSystem: "NTFS"}); err != nil {
		t.Fatal(err)
	}
	const folder = `C:\var\lib\kubelet\plugins\x`
	if err := m.MkdirAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := calls.Volumes.SetMountPoint(folder+`\`, volume); err != nil {
		t.Fatal(err)
	}
	if got, err := calls.Volumes.MountPoint(folder + `\`); err != nil || got != volume {
		t.Errorf("mounted is %q, %v", got, err)
	}
	if err := m.WriteFile(folder+`\data`, 1<<20); err != nil {
		t.Fatal(err)
	}
	names, err := calls.Volumes.PathNames(volume)
	if err != nil || strings.Join(names, " ") != folder+`\` {
		t.Errorf("it is at %q, %v", names, err)
	}
	space, err := calls.Volumes.FreeSpace(folder)
	if err != nil || space.Total < 1000<<20 || space.Total-space.Free < 1<<20 {
		t.Errorf("space %+v, %v", space, err)
	}
	if losses := m.Losses(); losses != nil {
		t.Errorf("lost: %v", losses)
	}
}
