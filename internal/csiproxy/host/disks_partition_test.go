package host

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// A disk with any data is never initialised, and stays offline and read-only if it
// was.
func TestPartition_rejectsADiskWithData(t *testing.T) {
	for name, test := range map[string]struct {
		spec windows.DiskSpec
		says string
	}{
		"noise":                       {windows.DiskSpec{Noise: true}, "data of unknown kind"},
		"a filesystem without table":  {windows.DiskSpec{Bytes: map[int64][]byte{1080: {0x53, 0xef}}}, "ext2, ext3 or ext4"},
		"NTFS whose table is gone":    {windows.DiskSpec{Bytes: map[int64][]byte{mebi + 3: []byte("NTFS    ")}}, "NTFS"},
		"LUKS":                        {windows.DiskSpec{Bytes: map[int64][]byte{0: []byte("LUKS\xba\xbe")}}, "LUKS"},
		"a byte in the last mebibyte": {windows.DiskSpec{Bytes: map[int64][]byte{10*gibi - 700: {1}}}, "data of unknown kind"},
		"an MBR without partitions":   {windows.DiskSpec{Style: "mbr", DataSize: 0}, ""},
		"an older partition's start":  {windows.DiskSpec{Style: "gpt", Bytes: map[int64][]byte{129*mebi + 3: []byte("NTFS    ")}}, "NTFS"},
		"a copy of a superblock":      {windows.DiskSpec{Bytes: map[int64][]byte{9*128*mebi + 56: {0x53, 0xef}}}, "data of unknown kind"},
		"files and nothing else": {windows.DiskSpec{
			Bytes: map[int64][]byte{4*gibi + 512: bytes.Repeat([]byte("text"), 3<<20)},
		}, "data of unknown kind"},
		"files below an empty GPT": {windows.DiskSpec{
			Style: "gpt", Bytes: map[int64][]byte{4*gibi + 512: bytes.Repeat([]byte("text"), 3<<20)},
		}, "data of unknown kind"},
		"data below an empty GPT": {windows.DiskSpec{Style: "gpt", Bytes: map[int64][]byte{17*mebi + 100: {1}}}, "data of unknown kind"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, windows.Options{})
			test.spec.Size, test.spec.Serial, test.spec.Offline, test.spec.ReadOnly = 10*gibi, cloudSerial, true, true
			r.machine.MustAddDisk(test.spec)
			before := r.machine.State().Disks[1]
			volume, err := r.host().Disks.Partition(t.Context(), 1, api.Identity{})
			if test.says == "" { // an MBR counts as partitioned, so it is left alone
				if volume != "" || err != nil {
					t.Errorf("%q, %v", volume, err)
				}
			} else {
				wantError(t, err, backend.ErrPrecondition, "disk 1", test.says)
			}
			after := r.machine.State().Disks[1]
			if after.Online || !after.ReadOnly || after.Style != before.Style || after.Partitions != before.Partitions {
				t.Errorf("%+v was %+v", after, before)
			}
		})
	}
}

// A range that cannot be read is not blank.
func TestPartition_refusesWhatItCannotRead(t *testing.T) {
	r := blankRig(t)
	r.machine.Inject(windows.Fault{Call: "Device.ReadAt", At: 3, Action: windows.Fail, Errno: win32.ErrorCRC})
	_, err := r.host().Disks.Partition(t.Context(), 1, api.Identity{})
	wantError(t, err, backend.ErrUnavailable, "ERROR_CRC (23)")
	if disk := r.machine.State().Disks[1]; disk.Online || disk.Style != "raw" {
		t.Errorf("%+v", disk)
	}
}

func TestPartition_leavesAPartitionedDiskAsItIs(t *testing.T) {
	for name, spec := range map[string]windows.DiskSpec{
		"a GPT":                               {Style: "data", FileSystem: "NTFS"},
		"an MBR, which counts as partitioned": {Style: "mbr", FileSystem: "NTFS"},
		"a raw volume":                        {Style: "data"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, windows.Options{})
			spec.Size, spec.Serial = 10*gibi, cloudSerial
			r.machine.MustAddDisk(spec)
			before := r.machine.State().Disks[1]
			volume, err := r.host().Disks.Partition(t.Context(), 1, api.Identity{})
			mustDo(t, err)
			if after := r.machine.State().Disks[1]; volume != canonicalOf(t, before.Volumes[0].Name) ||
				after.Volumes[0].Name != before.Volumes[0].Name || after.Partitions != before.Partitions {
				t.Errorf("%q; %+v", volume, after)
			}
		})
	}
	r := newRig(t, windows.Options{})
	r.machine.MustAddDisk(windows.DiskSpec{
		Serial: cloudSerial, Size: 10 * gibi, Style: "data", FileSystem: "NTFS", Offline: true, ReadOnly: true,
	})
	volume, err := r.host().Disks.Partition(t.Context(), 1, api.Identity{})
	if disk := r.machine.State().Disks[1]; volume != "" || err != nil || disk.Online || !disk.ReadOnly {
		t.Errorf("offline: %q, %v, %+v", volume, err, disk)
	}
}

func canonicalOf(t *testing.T, name string) string {
	t.Helper()
	parsed, err := win32.ParseVolumeName(name)
	mustDo(t, err)
	return parsed
}

// An interrupted partitioning is completed, also when another program
// began it: a GPT without partitions, and one with the reserved one only.
func TestPartition_finishesWhatWasBegun(t *testing.T) {
	r := newRig(t, windows.Options{SANPolicy: windows.OfflineAll})
	spec := cloudDisk(10 * gibi)
	spec.Style = "gpt"
	r.machine.MustAddDisk(spec)
	volume, err := r.host().Disks.Partition(t.Context(), 1, api.Identity{})
	disk := r.machine.State().Disks[1]
	if err != nil || volume == "" || disk.Partitions != 2 || !disk.Online || disk.ReadOnly {
		t.Errorf("%q, %v, %+v", volume, err, disk)
	}
}

func TestPartition_ofADiskOfFourKibibyteSectors(t *testing.T) {
	r := newRig(t, windows.Options{})
	r.machine.MustAddDisk(windows.DiskSpec{Serial: cloudSerial, Size: 10 * gibi, SectorSize: 4096})
	h, ctx := r.host(), t.Context()
	volume, err := h.Disks.Partition(ctx, 1, api.Identity{})
	mustDo(t, err)
	mustDo(t, h.Volumes.Format(ctx, volume, ""))
	mustDo(t, r.machine.GrowDisk(1, 11*gibi))
	if size, err := h.Volumes.Resize(ctx, volume, 0); err != nil || size < 11*gibi-20*mebi {
		t.Errorf("%d, %v", size, err)
	}
}

func TestPartition_ofADiskThatIsTooSmall(t *testing.T) {
	r := newRig(t, windows.Options{})
	r.machine.MustAddDisk(windows.DiskSpec{Serial: cloudSerial, Size: 4 * mebi})
	_, err := r.host().Disks.Partition(t.Context(), 1, api.Identity{})
	wantError(t, err, backend.ErrPrecondition, "a data partition needs")
}

// An empty answer is none while the volume may still come.
func TestPartition_waitsForTheVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, windows.Options{VolumeDelay: 7 * time.Second})
		r.machine.MustAddDisk(cloudDisk(10 * gibi))
		h := r.host()
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if volume, err := h.Disks.Partition(short, 1, api.Identity{}); volume != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v after 3 s", volume, err)
		}
		start := time.Now()
		names, err := h.Volumes.OnDisk(t.Context(), 1, 2)
		if len(names) != 1 || err != nil || time.Since(start) < 3*time.Second {
			t.Errorf("%q, %v after %s", names, err, time.Since(start))
		}
		if volume, err := h.Disks.Partition(t.Context(), 1, api.Identity{}); err != nil || volume != names[0] {
			t.Errorf("%q, %v", volume, err)
		}
	})
}

// A volume that never comes is an error, not an empty list.
func TestPartition_givesUpOnAVolumeThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, windows.Options{VolumeDelay: time.Hour})
		r.machine.MustAddDisk(cloudDisk(10 * gibi))
		h := r.host()
		_, err := h.Disks.Partition(t.Context(), 1, api.Identity{})
		wantError(t, err, backend.ErrUnavailable, "disk 1")
		_, err = h.Volumes.OnDisk(t.Context(), 1, 0)
		wantError(t, err, backend.ErrUnavailable, "disk 1")
	})
}

func TestOnDisk_ofPartitionsThatHaveNoVolume(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	if names, err := h.Volumes.OnDisk(ctx, 1, 1); len(names) != 0 || err != nil {
		t.Errorf("the reserved partition: %q, %v", names, err)
	}
	_, err := h.Volumes.OnDisk(ctx, 1, 7)
	wantError(t, err, backend.ErrNotFound, "no partition 7")
	r.machine.MustAddDisk(windows.DiskSpec{Serial: "blank", Size: gibi})
	if names, err := h.Volumes.OnDisk(ctx, 2, 0); len(names) != 0 || err != nil {
		t.Errorf("a disk without partitions: %q, %v", names, err)
	}
}

func TestSetOnline_offlineRefusesABusyVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		h, ctx := r.host(), t.Context()
		volume, err := onlyVolume(ctx, h)
		mustDo(t, err)
		mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
		mustDo(t, r.machine.WriteFile(stagingDir+`\file`, 100))
		file, err := r.machine.Open(stagingDir+`\file`, true)
		mustDo(t, err)
		err = h.Disks.SetOnline(ctx, 1, api.Identity{}, false)
		wantError(t, err, backend.ErrInUse, volume, "FSCTL_LOCK_VOLUME", "ERROR_ACCESS_DENIED (5)")
		if disk := r.machine.State().Disks[1]; !disk.Online || disk.Volumes[0].IsLocked {
			t.Errorf("%+v", disk)
		}
		time.AfterFunc(3*time.Second, file.Close) // as a scanner's handle goes
		mustDo(t, h.Disks.SetOnline(ctx, 1, api.Identity{}, false))
		for range 2 {
			mustDo(t, h.Disks.SetOnline(ctx, 1, api.Identity{}, true))
		}
		if !r.machine.Exists(stagingDir + `\file`) {
			t.Error("the file is gone")
		}
	})
}

// Between the dismount and the disk's going offline no program opens the volume: data that it wrote
// would be lost.
func TestSetOnline_offlineKeepsTheVolumeLockedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		h, ctx := r.host(), t.Context()
		volume, err := onlyVolume(ctx, h)
		mustDo(t, err)
		mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
		late := errors.New("not tried")
		remove := r.machine.Hook(func(call windows.Call) {
			if call.Matches("IOCTL_DISK_SET_DISK_ATTRIBUTES", "") {
				late = r.machine.WriteFile(stagingDir+`\late`, 100)
			}
		})
		mustDo(t, h.Disks.SetOnline(ctx, 1, api.Identity{}, false))
		remove()
		if !errors.Is(late, win32.ErrorAccessDenied) {
			t.Errorf("a write in the last moment ends with %v", late)
		}
		mustDo(t, h.Disks.SetOnline(ctx, 1, api.Identity{}, true))
	})
}

// If Windows does not take a disk with open handles offline, the proxy closes its own first.
func TestSetOnline_offlineLetsGoOfTheVolumeIfNeedBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		r.machine.Inject(windows.Fault{Call: "IOCTL_DISK_SET_DISK_ATTRIBUTES", Action: windows.Fail, Errno: win32.ErrorBusy, Times: 1})
		mustDo(t, r.host().Disks.SetOnline(t.Context(), 1, api.Identity{}, false))
	})
}

// A volume that does not say in time where it is may be on the disk, with files
// open: the disk does not go before that is known.
func TestSetOnline_offlineWaitsForAVolumeThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		h, ctx := r.host(), t.Context()
		volume, err := onlyVolume(ctx, h)
		mustDo(t, err)
		mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
		mustDo(t, r.machine.WriteFile(stagingDir+`\file`, 100))
		file, err := r.machine.Open(stagingDir+`\file`, true)
		mustDo(t, err)
		slow := r.machine.Inject(windows.Fault{Call: "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS", Target: volume, Action: windows.Hang})
		defer slow.Remove()
		wantError(t, h.Disks.SetOnline(ctx, 1, api.Identity{}, false), backend.ErrUnavailable, volume, "stays online")
		if disk := r.machine.State().Disks[1]; !disk.Online {
			t.Error("the disk was pulled away below an open file")
		}
		file.Close()
		slow.Remove()
		synctest.Wait()
		mustDo(t, h.Disks.SetOnline(ctx, 1, api.Identity{}, false))
	})
}

// A disk whose volumes are all known does not wait for another's.
func TestSetOnline_offlineIsNotHeldUpByAnotherDisksVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		other := cloudDisk(10 * gibi)
		other.Serial, other.Style, other.FileSystem = "other", "data", "NTFS"
		r.machine.MustAddDisk(other)
		h := r.host()
		hung := r.machine.Inject(windows.Fault{
			Call: "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS", Target: r.machine.State().Disks[2].Volumes[0].Name, Action: windows.Hang,
		})
		defer hung.Remove()
		mustDo(t, h.Disks.SetOnline(t.Context(), 1, api.Identity{}, false))
	})
}

func TestSetOnline_neverPullsTheSystemDiskAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, windows.Options{}).host()
		if err := h.Disks.SetOnline(t.Context(), 0, api.Identity{}, false); err == nil {
			t.Fatal("the system disk is offline")
		}
		if online, err := h.Disks.Online(t.Context(), 0); !online || err != nil {
			t.Error(online, err)
		}
	})
}
