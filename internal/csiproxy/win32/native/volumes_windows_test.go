package native

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// noVolume is the name of a volume that no machine has.
const noVolume = `\\?\Volume{00000000-1111-2222-3333-444444444444}\`

func TestVolumes_areFoundNamedAndMeasured(t *testing.T) {
	v := volumes{}
	system, err := v.MountPoint(`C:\`)
	must(t, err)
	if !strings.HasPrefix(system, `\\?\Volume{`) || !strings.HasSuffix(system, `}\`) {
		t.Fatalf("the volume of C: is %q", system)
	}
	all, err := v.All()
	must(t, err)
	if !slices.ContainsFunc(all, func(name string) bool { return strings.EqualFold(name, system) }) {
		t.Errorf("%s is not in %q", system, all)
	}
	names, err := v.PathNames(system)
	must(t, err)
	if !slices.Contains(names, `C:\`) {
		t.Errorf("%s is mounted at %q", system, names)
	}
	information, err := v.Information(system)
	must(t, err)
	if information.FileSystem != "NTFS" {
		t.Errorf("C: is %+v", information)
	}
	byName, err := v.FreeSpace(system)
	must(t, err)
	byPath, err := v.FreeSpace(`C:\`)
	must(t, err)
	if byName.Total == 0 || byName.Total != byPath.Total || byName.Free > byName.Total {
		t.Errorf("space %+v and %+v", byName, byPath)
	}
}

// Searches are closed, so that thousands of them leave no handle behind.
func TestVolumes_closeTheirSearch(t *testing.T) {
	before := handles(t)
	for range 200 {
		if _, err := (volumes{}).All(); err != nil {
			t.Fatal(err)
		}
	}
	if after := handles(t); after > before+50 {
		t.Errorf("%d handles became %d", before, after)
	}
}

func handles(t *testing.T) uint32 {
	t.Helper()
	proc := windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessHandleCount")
	var count uint32
	if result, _, err := proc.Call(uintptr(windows.CurrentProcess()), ptr(&count)); result == 0 {
		t.Fatal(err)
	}
	return count
}

func TestVolumes_giveTheNumbersOfWindows(t *testing.T) {
	v, dir := volumes{}, winetest.Dir(t)
	_, err := v.Information(noVolume)
	refusedWith(t, "information of no volume", err, win32.ErrorFileNotFound, win32.ErrorPathNotFound)
	_, err = v.Open(noVolume, win32.Query)
	refusedWith(t, "open of no volume", err, win32.ErrorFileNotFound, win32.ErrorPathNotFound)
	_, err = v.PathNames(noVolume)
	refusedWith(t, "paths of no volume", err, win32.ErrorFileNotFound)
	_, err = v.MountPoint(dir + `\`)
	refusedWith(t, "mount point at a plain directory", err, win32.ErrorNotAReparsePoint, win32.ErrorInvalidParameter)
	_, err = v.FreeSpace(dir + `\none\`)
	refusedWith(t, "free space of nothing", err, win32.ErrorPathNotFound, win32.ErrorFileNotFound)
	_, err = v.MountPoint("C:\\a\x00b")
	refusedWith(t, "a path with NUL", err, win32.ErrorInvalidName)
}

// refusedWith is refused with any of several numbers.
func refusedWith(t *testing.T, what string, err error, numbers ...win32.Errno) {
	t.Helper()
	if !slices.ContainsFunc(numbers, func(number win32.Errno) bool { return errors.Is(err, number) }) {
		t.Errorf("%s: %v, not one of %v", what, err, numbers)
	}
}

func TestVolumes_mountAndUnmount(t *testing.T) {
	v, dir := volumes{}, winetest.Dir(t)
	system, err := v.MountPoint(`C:\`)
	must(t, err)
	at := filepath.Join(dir, "mounted")
	must(t, os.Mkdir(at, 0o755))
	if err := v.SetMountPoint(at+`\`, system); err != nil {
		refused(t, "mount", err, win32.ErrorCallNotImplemented)
		effectMissing(t, "SetVolumeMountPoint", err)
	}
	defer func() { must(t, v.DeleteMountPoint(at+`\`)) }()
	got, err := v.MountPoint(at + `\`)
	must(t, err)
	if !strings.EqualFold(got, system) {
		t.Errorf("%s is mounted, not %s", got, system)
	}
}

func TestVolumes_areDevices(t *testing.T) {
	v := volumes{}
	system, err := v.MountPoint(`C:\`)
	must(t, err)
	device, err := v.Open(system, win32.Query)
	must(t, err)
	defer func() { must(t, device.Close()) }()
	out := make([]byte, win32.VolumeDiskExtentsSize(4))
	n, err := device.Control(win32.IoctlVolumeGetVolumeDiskExtents, nil, out)
	must(t, err)
	extents, err := win32.DecodeVolumeDiskExtents(out[:n])
	must(t, err)
	if len(extents) == 0 {
		effectMissing(t, "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS", errors.New("no extents"))
	}
}

func TestDevices_returnTheirNumber(t *testing.T) {
	disk, err := devices{}.OpenDisk(0, win32.Query)
	must(t, err)
	defer func() { must(t, disk.Close()) }()
	out := make([]byte, 64)
	n, err := disk.Control(win32.IoctlStorageGetDeviceNumber, nil, out)
	must(t, err)
	number, err := win32.DecodeDeviceNumber(out[:n])
	must(t, err)
	if number != (win32.DeviceNumber{Type: win32.DeviceTypeDisk}) {
		t.Errorf("disk 0 is %+v", number)
	}
	n, err = disk.Control(win32.IoctlStorageQueryProperty, win32.PropertyQuery{Property: win32.PropertyDevice}.Encode(), out)
	must(t, err)
	if _, err := win32.DecodeDeviceDescriptor(out[:n]); err != nil {
		t.Error(err)
	}
	n, err = disk.Control(win32.IoctlDiskGetDriveGeometryEx, nil, out)
	must(t, err)
	if geometry, err := win32.DecodeGeometry(out[:n]); err != nil || geometry.BytesPerSector == 0 {
		t.Errorf("%+v, %v", geometry, err)
	}
}

func TestDevices_giveTheNumbersOfWindows(t *testing.T) {
	_, err := devices{}.OpenDisk(4000, win32.Query)
	refused(t, "no disk", err, win32.ErrorFileNotFound)
	_, err = devices{}.OpenInterface(`\\?\none#none#{53f56307-b6bf-11d0-94f2-00a0c91efb8b}`, win32.Query)
	refusedWith(t, "no interface", err, win32.ErrorFileNotFound, win32.ErrorPathNotFound)
	disk, err := devices{}.OpenDisk(0, win32.Query)
	must(t, err)
	defer func() { must(t, disk.Close()) }()
	_, err = disk.Control(win32.ControlCode(0x70FF0), nil, nil)
	refusedWith(t, "no such code", err, win32.ErrorNotSupported, win32.ErrorInvalidFunction)
	if err == nil || !strings.Contains(err.Error(), "control code 0x70ff0") {
		t.Errorf("the text is %v", err)
	}
}

func TestDevices_listInterfaces(t *testing.T) {
	paths, err := devices{}.Interfaces()
	if errors.Is(err, win32.ErrorGenFailure) {
		effectMissing(t, "CM_Get_Device_Interface_List", err)
	}
	must(t, err)
	for _, path := range paths {
		device, err := devices{}.OpenInterface(path, win32.Query)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		must(t, device.Close())
	}
	if len(paths) == 0 {
		effectMissing(t, "CM_Get_Device_Interface_List", errors.New("no disk has an interface"))
	}
}

func TestDevices_namesOpenDisks(t *testing.T) {
	numbers, err := devices{}.Numbers()
	must(t, err)
	for _, number := range numbers {
		disk, err := devices{}.OpenDisk(number, win32.Query)
		if err != nil {
			t.Errorf("disk %d: %v", number, err)
			continue
		}
		must(t, disk.Close())
	}
	if len(numbers) == 0 {
		effectMissing(t, "QueryDosDevice", errors.New("no disk has a name"))
	}
}

func TestDevices_reenumerate(t *testing.T) {
	if err := (devices{}).Reenumerate(); err != nil {
		var number win32.Errno
		if !errors.As(err, &number) {
			t.Errorf("%v carries no number", err)
		}
		effectMissing(t, "CM_Reenumerate_DevNode", err)
	}
}

// Raw sectors: wine takes a file for the disk of a drive when a link in the
// prefix says so.
func TestDevice_readsSectors(t *testing.T) {
	if !win32.UnderWine() {
		effectMissing(t, "a drive that is a file", nil)
	}
	file := filepath.Join(winetest.Dir(t), "disk")
	content := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	content[512] = 'X'
	must(t, os.WriteFile(file, content, 0o644))
	drive := os.Getenv("WINEPREFIX") + "/dosdevices/k::"
	there := func() bool { _, err := os.Lstat(`Z:` + drive); return err == nil }
	unix(t, func() bool {
		device, err := openDevice(`\\.\K:`, win32.Query)
		return err == nil && device.Close() == nil
	},
		"/bin/ln", "-sfn", unixPath(t, file), drive)
	defer unix(t, func() bool { return !there() }, "/bin/rm", "-f", drive)

	device, err := volumes{}.Open(`\\.\K:\`, win32.Read)
	must(t, err)
	defer func() { must(t, device.Close()) }()
	sector := make([]byte, 512)
	for _, offset := range []int64{0, 512, int64(len(content)) - 512} {
		n, err := device.ReadAt(sector, offset)
		if err != nil || n != 512 || !bytes.Equal(sector, content[offset:offset+512]) {
			t.Errorf("at %d: %d bytes, %v", offset, n, err)
		}
	}
	n, err := device.ReadAt(make([]byte, 1024), int64(len(content))-512)
	if err == nil {
		t.Errorf("past the end: %d bytes and no error", n)
	}
}

func TestFormat_failsWithoutWMI(t *testing.T) {
	if !win32.UnderWine() {
		t.Skip("only where nothing can be formatted")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := New(Options{}).Volumes.Format(ctx, noVolume, win32.FormatRequest{FileSystem: "NTFS"})
	var number win32.Errno
	if !errors.As(err, &number) {
		t.Errorf("%v carries no number", err)
	}
}
