package windows_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const folder = `C:\var\lib\kubelet\plugins\x`

// mounted returns a machine with an NTFS volume mounted at folder.
func mounted(t *testing.T) (m *windows.Machine, calls win32.Machine, number uint32, volume string) {
	t.Helper()
	m, calls = machine(t, windows.Options{})
	number = m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi})
	volume = formatted(t, calls, number)
	must(t, m.MkdirAll(folder))
	must(t, calls.Volumes.SetMountPoint(folder+`\`, volume))
	return m, calls, number, volume
}

// SetVolumeMountPoint: an empty directory on an NTFS volume, named with the last
// backslash, that is not a reparse point; a volume's name has its last backslash, too.
func TestSetMountPoint_isRefused(t *testing.T) {
	m, calls, _, volume := mounted(t)
	m.MustAddDisk(windows.DiskSpec{Serial: "fat", Size: gibi, Style: "data", FileSystem: "FAT32", DriveLetter: true})
	must(t, m.MkdirAll(`C:\full\x`))
	must(t, m.MkdirAll(`C:\empty`))
	must(t, m.MkdirAll(`D:\empty`))
	must(t, m.WriteFile(`C:\file`, 1))
	must(t, m.Symlink(`C:\link`, `C:\empty`, true))
	must(t, m.Junction(`C:\junction`, `C:\empty`))
	for _, c := range []struct {
		directory, volume string
		want              win32.Errno
	}{
		{folder + `\`, volume, win32.ErrorDirNotEmpty}, // mounted already
		{`C:\full\`, volume, win32.ErrorDirNotEmpty},
		{`C:\junction\`, volume, win32.ErrorDirNotEmpty},
		{`C:\link\`, volume, win32.ErrorReparseTagMismatch},
		{`C:\file\`, volume, win32.ErrorDirectory},
		{`C:\missing\`, volume, win32.ErrorFileNotFound},
		{`C:\missing\x\`, volume, win32.ErrorPathNotFound},
		{`D:\empty\`, volume, win32.ErrorInvalidFunction},
		{`C:\empty`, volume, win32.ErrorInvalidName},
		{`C:\empty\`, strings.TrimSuffix(volume, `\`), win32.ErrorInvalidName},
		{`C:\empty\`, `\\?\Volume{00000000-0000-0000-0000-000000000001}\`, win32.ErrorFileNotFound},
		{`C:\empty\`, `C:\`, win32.ErrorInvalidName},
	} {
		refused(t, c.directory+" "+c.volume, calls.Volumes.SetMountPoint(c.directory, c.volume), c.want)
	}
	if names, err := m.List(`C:\empty`); err != nil || names != nil {
		t.Errorf("the empty directory has %q, %v", names, err)
	}
}

// GetVolumeNameForVolumeMountPoint answers for mounted folders and drives only;
// DeleteVolumeMountPoint takes the volume off and leaves the directory.
func TestMountPoint_returnsMountedFoldersOnly(t *testing.T) {
	m, calls, _, volume := mounted(t)
	must(t, m.MkdirAll(`C:\empty`))
	must(t, m.Symlink(`C:\link`, folder, true))
	must(t, m.Junction(`C:\junction`, folder))
	for path, want := range map[string]win32.Errno{
		`C:\empty\`: win32.ErrorNotAReparsePoint, `C:\link\`: win32.ErrorInvalidParameter, `C:\junction\`: win32.ErrorInvalidParameter,
		`C:\missing\`: win32.ErrorFileNotFound,
	} {
		_, err := calls.Volumes.MountPoint(path)
		refused(t, "what is mounted at "+path, err, want)
		refused(t, "unmounting "+path, calls.Volumes.DeleteMountPoint(path), want)
	}
	if system, err := calls.Volumes.MountPoint(`c:\`); err != nil || system == volume {
		t.Errorf("C: is %q, %v", system, err)
	}
	target, err := m.Readlink(folder)
	if err != nil || target.Tag != win32.ReparseTagMountPoint || target.Substitute != `\??\`+volume[4:] {
		t.Errorf("the folder holds %+v, %v", target, err)
	}
	must(t, calls.Volumes.SetMountPoint(`C:\empty\`, strings.ToUpper(volume[:10])+volume[10:])) // several folders, any case
	names, err := calls.Volumes.PathNames(volume)
	if err != nil || !slices.Equal(names, []string{folder + `\`, `C:\empty\`}) {
		t.Errorf("it is at %q, %v", names, err)
	}
	must(t, calls.Volumes.DeleteMountPoint(folder+`\`))
	if info, err := m.Lstat(folder); err != nil || info.IsReparse() {
		t.Errorf("the folder is %+v, %v", info, err)
	}
}

// A mounted folder outlives its volume: it can be removed, but names no volume.
func TestMountPoint_whoseVolumeIsGone(t *testing.T) {
	m, calls, number, volume := mounted(t)
	must(t, m.RemoveDisk(number))
	_, err := calls.Volumes.MountPoint(folder + `\`)
	refused(t, "what is mounted", err, win32.ErrorFileNotFound)
	_, err = calls.Files.Attributes(folder)
	refused(t, "what is behind", err, win32.ErrorPathNotFound)
	if info, err := m.Lstat(folder); err != nil || info.ReparseTag != win32.ReparseTagMountPoint {
		t.Errorf("the folder is %+v, %v", info, err)
	}
	_, err = calls.Volumes.Open(volume, win32.Read)
	refused(t, "opening the volume", err, win32.ErrorFileNotFound)
	must(t, calls.Volumes.DeleteMountPoint(folder+`\`))
}

// FSCTL_LOCK_VOLUME: nothing else may be open on the volume; while it is locked
// no other handle opens anything there. A lock goes with its handle.
func TestLock_needsTheVolumeToBeIdle(t *testing.T) {
	m, calls, _, volume := mounted(t)
	lock := func(d win32.Device) error {
		_, err := d.Control(win32.FsctlLockVolume, nil, nil)
		return err
	}
	v, err := calls.Volumes.Open(volume, win32.ReadWrite)
	must(t, err)
	must(t, m.WriteFile(folder+`\file`, 1))
	f, err := m.Open(folder+`\file`, true)
	must(t, err)
	refused(t, "a lock next to an open file", lock(v), win32.ErrorAccessDenied)
	f.Close()
	other, err := calls.Volumes.Open(volume, win32.Read)
	must(t, err)
	refused(t, "a lock next to another handle", lock(v), win32.ErrorAccessDenied)
	refused(t, "a lock without the right to write", lock(other), win32.ErrorAccessDenied)
	must(t, other.Close())
	query, err := calls.Volumes.Open(volume, win32.Query)
	must(t, err)
	defer query.Close()
	must(t, lock(v))
	_, err = calls.Volumes.Open(volume, win32.Read)
	refused(t, "opening a locked volume", err, win32.ErrorAccessDenied)
	_, err = calls.Files.OpenRoot(folder)
	refused(t, "opening a directory there", err, win32.ErrorAccessDenied)
	_, err = calls.Volumes.Information(volume)
	refused(t, "its filesystem", err, win32.ErrorAccessDenied)
	must(t, calls.Volumes.DeleteMountPoint(folder+`\`)) // is about C:
	must(t, v.Close())
	if _, err := calls.Volumes.Information(volume); err != nil {
		t.Errorf("after the lock's handle: %v", err)
	}
}

// FSCTL_DISMOUNT_VOLUME makes all handles of files void, with or without a lock;
// the next call mounts the volume again.
func TestDismount_makesHandlesVoid(t *testing.T) {
	_, calls, _, volume := mounted(t)
	d, err := calls.Files.OpenRoot(folder)
	must(t, err)
	v, err := calls.Volumes.Open(volume, win32.ReadWrite)
	must(t, err)
	defer v.Close()
	control(t, v, win32.FsctlDismountVolume, nil)
	refused(t, "the old handle", d.Mkdir("x"), win32.ErrorFileInvalid)
	must(t, d.Close())
	if d, err = calls.Files.OpenRoot(folder); err != nil {
		t.Fatal(err)
	}
	must(t, d.Mkdir("x"))
	must(t, d.Close())
}

// A disk that goes offline removes its volumes, even if files on them are open.
func TestOffline_pullsTheVolumesAway(t *testing.T) {
	m, calls, number, volume := mounted(t)
	must(t, m.WriteFile(folder+`\file`, 1))
	f, err := m.Open(folder+`\file`, false)
	must(t, err)
	v, err := calls.Volumes.Open(volume, win32.ReadWrite)
	must(t, err)
	d := openDisk(t, calls, number)
	set := func(attributes uint64) {
		control(t, d, win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Mask: 1, Attributes: attributes}.Encode())
	}
	set(win32.DiskAttributeOffline)
	refused(t, "the volume's handle", v.Flush(), 433)
	f.Close()
	if names, err := calls.Volumes.All(); err != nil || slices.Contains(names, volume) {
		t.Errorf("volumes %q, %v", names, err)
	}
	set(0)
	if !m.Exists(folder + `\file`) {
		t.Error("the file is gone")
	}
	system := openDisk(t, calls, 0)
	_, err = system.Control(win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Mask: 1, Attributes: 1}.Encode(), nil)
	refused(t, "taking the system's disk offline", err, win32.ErrorAccessDenied)
}

// Names of volumes are \\?\Volume{GUID}\ and nothing else; a raw volume is
// ERROR_UNRECOGNIZED_VOLUME; a volume without NO_DRIVE_LETTER gets a letter.
func TestVolumes_areNamedStrictly(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi})
	volume := partitioned(t, calls, number)
	m.MustAddDisk(windows.DiskSpec{Serial: "lettered", Size: gibi, Style: "mbr", FileSystem: "NTFS"})
	names, err := calls.Volumes.All()
	must(t, err)
	if len(names) != 3 || names[1] != volume {
		t.Fatalf("volumes %q", names)
	}
	if paths, err := calls.Volumes.PathNames(names[2]); err != nil || !slices.Equal(paths, []string{`D:\`}) {
		t.Errorf("the lettered one is at %q, %v", paths, err)
	}
	if paths, err := calls.Volumes.PathNames(volume); err != nil || paths != nil {
		t.Errorf("the new one is at %q, %v", paths, err)
	}
	for _, name := range []string{"", `C:\`, volume[:len(volume)-1], volume[4:], volume + `x`, `\\?\Volume{zz}\`} {
		_, err := calls.Volumes.Information(name)
		refused(t, name, err, win32.ErrorInvalidName)
	}
	_, err = calls.Volumes.FreeSpace(volume)
	refused(t, "the space of a raw volume", err, win32.ErrorUnrecognizedVolume)
	refused(t, "ext4", calls.Volumes.Format(t.Context(), volume, win32.FormatRequest{FileSystem: "ext4"}), win32.ErrorNotSupported)
	for what, size := range map[string]uint32{"a cluster of 3000": 3000, "a cluster below the sector": 256} {
		err := calls.Volumes.Format(t.Context(), volume, win32.FormatRequest{FileSystem: "NTFS", ClusterSize: size})
		refused(t, what, err, win32.ErrorInvalidParameter)
	}
	must(t, calls.Volumes.Format(t.Context(), volume, win32.FormatRequest{FileSystem: "NTFS", ClusterSize: 65536, Label: "x"}))
	info, err := calls.Volumes.Information(volume)
	if err != nil || info.FileSystem != "NTFS" || info.Label != "x" {
		t.Errorf("formatted %+v, %v", info, err)
	}
	short := make([]byte, 8)
	v, err := calls.Volumes.Open(volume, win32.Query)
	must(t, err)
	defer v.Close()
	_, err = v.Control(win32.IoctlVolumeGetVolumeDiskExtents, nil, short)
	if !errors.Is(err, win32.ErrorInsufficientBuffer) {
		t.Errorf("the extents in 8 bytes: %v", err)
	}
	_, err = v.Control(win32.FsctlGetNTFSVolumeData, nil, make([]byte, 96))
	refused(t, "a code of the filesystem on a handle of the device", err, win32.ErrorInvalidFunction)
}

// A spanned volume has several extents: ERROR_MORE_DATA with the first of them.
func TestExtents_ofASpannedVolume(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	m.MustAddDisk(windows.DiskSpec{
		Serial: "a", Size: gibi, Style: "data", FileSystem: "NTFS", Spanned: win32.VolumeDiskExtents{{Disk: 9, Offset: 1 << 20, Length: 1 << 20}},
	})
	names, err := calls.Volumes.All()
	must(t, err)
	v, err := calls.Volumes.Open(names[1], win32.Query)
	must(t, err)
	defer v.Close()
	out := make([]byte, win32.VolumeDiskExtentsSize(1))
	n, err := v.Control(win32.IoctlVolumeGetVolumeDiskExtents, nil, out)
	refused(t, "one extent of two", err, win32.ErrorMoreData)
	if n != len(out) || out[0] != 2 {
		t.Errorf("%d bytes, %d extents", n, out[0])
	}
}

// FlushFileBuffers: what programs wrote is in the cache until the volume is
// flushed, locked or dismounted; a volume that is pulled away before loses it.
func TestFlush_isNeededBeforeAVolumeGoes(t *testing.T) {
	for name, c := range map[string]struct {
		save func(v win32.Device) error
		lost int
	}{
		"nothing": {func(win32.Device) error { return nil }, 1},
		"flush":   {func(v win32.Device) error { return v.Flush() }, 0},
		"lock": {func(v win32.Device) error {
			_, err := v.Control(win32.FsctlLockVolume, nil, nil)
			return err
		}, 0},
		"dismount": {func(v win32.Device) error {
			_, err := v.Control(win32.FsctlDismountVolume, nil, nil)
			return err
		}, 0},
	} {
		m, calls, number, volume := mounted(t)
		must(t, m.WriteFile(folder+`\data`, 1))
		v, err := calls.Volumes.Open(volume, win32.ReadWrite)
		must(t, err)
		must(t, c.save(v))
		must(t, v.Close())
		must(t, m.RemoveDisk(number))
		if losses := m.Losses(); len(losses) != c.lost {
			t.Errorf("%s: lost %q", name, losses)
		}
	}
	_, calls, _, volume := mounted(t)
	v, err := calls.Volumes.Open(volume, win32.Read)
	must(t, err)
	defer v.Close()
	refused(t, "flushing by a handle that may only read", v.Flush(), win32.ErrorAccessDenied)
}
