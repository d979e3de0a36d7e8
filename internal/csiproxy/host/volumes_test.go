package host

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/simulated"
)

const noSuchVolume = `\\?\Volume{00000000-0000-0000-0000-000000000001}\`

// dataOffset is where the simulated machine begins a prepared data partition.
const dataOffset = 17 * mebi

// rawRig has a raw volume with some bytes on it.
func rawRig(t *testing.T, bytes map[int64][]byte) (*rig, hub.Host, string) {
	t.Helper()
	r := newRig(t, simulated.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.Bytes = "data", map[int64][]byte{}
	for offset, data := range bytes {
		spec.Bytes[dataOffset+offset] = data
	}
	r.machine.MustAddDisk(spec)
	mustDo(t, r.machine.MkdirAll(stagingDir))
	h := r.host()
	volume, err := onlyVolume(t.Context(), h)
	mustDo(t, err)
	return r, h, volume
}

// D-5: a volume ID is checked by every operation before anything else.
func TestVolumes_refuseWhatIsNoVolumeID(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	stop := r.machine.Record()
	for _, id := range []string{"", `C:\`, `\\.\PhysicalDrive0`, `\\?\Volume{x}\`, noSuchVolume + "x"} {
		for name, err := range map[string]error{
			"FileSystem": second(h.Volumes.FileSystem(ctx, id)), "Stats": second(h.Volumes.Stats(ctx, id)), "DiskOf": second(h.Volumes.DiskOf(ctx, id)),
			"Resize": second(h.Volumes.Resize(ctx, id, 0)), "Format": h.Volumes.Format(ctx, id, ""), "Flush": h.Volumes.Flush(ctx, id),
			"Mount": h.Volumes.Mount(ctx, id, stagingDir), "Unmount": h.Volumes.Unmount(ctx, id, stagingDir),
		} {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s of %q: %v", name, id, err)
			}
		}
	}
	if calls := stop(); len(calls) > 0 {
		t.Errorf("%+v were called", calls)
	}
}

func second[T any](_ T, err error) error { return err }

func TestVolumes_anUnknownOneIsNotFound(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	for name, err := range map[string]error{
		"FileSystem": second(h.Volumes.FileSystem(ctx, noSuchVolume)), "Stats": second(h.Volumes.Stats(ctx, noSuchVolume)),
		"DiskOf": second(h.Volumes.DiskOf(ctx, noSuchVolume)), "Resize": second(h.Volumes.Resize(ctx, noSuchVolume, 0)),
		"Format": h.Volumes.Format(ctx, noSuchVolume, ""), "Mount": h.Volumes.Mount(ctx, noSuchVolume, stagingDir), "Flush": h.Volumes.Flush(ctx, noSuchVolume),
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, err, backend.ErrNotFound, noSuchVolume, "_NOT_FOUND (")
		})
	}
	mustDo(t, h.Volumes.Unmount(ctx, noSuchVolume, stagingDir)) // it is not mounted there
}

func TestVolumes_aSpannedOneIsRefused(t *testing.T) {
	r := newRig(t, simulated.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.FileSystem, spec.Spanned = "data", "NTFS", win32.VolumeDiskExtents{{Disk: 0, Offset: 0, Length: mebi}}
	r.machine.MustAddDisk(spec)
	h, ctx := r.host(), t.Context()
	volume := r.machine.State().Disks[1].Volumes[0].Name
	_, err := h.Volumes.DiskOf(ctx, volume)
	wantError(t, err, backend.ErrPrecondition, "spanned")
	_, err = h.Volumes.Resize(ctx, volume, 0)
	wantError(t, err, backend.ErrPrecondition, "spanned")
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrPrecondition, "spanned")
}

// D-12: what has a filesystem, or anything else, is not formatted, whoever asks.
func TestFormat_refusesWhateverIsNotBlank(t *testing.T) {
	for _, fileSystem := range []string{"NTFS", "FAT32", "exFAT", "ReFS"} {
		r := volumeRig(t, fileSystem)
		h := r.host()
		volume, err := onlyVolume(t.Context(), h)
		mustDo(t, err)
		wantError(t, h.Volumes.Format(t.Context(), volume, "NTFS"), backend.ErrPrecondition, volume, fileSystem)
	}
	for name, bytes := range map[string]map[int64][]byte{
		"ext2, ext3 or ext4":            {1080: {0x53, 0xef}},
		"XFS":                           {0: []byte("XFSB")},
		"LUKS":                          {0: []byte("LUKS\xba\xbe")},
		"BitLocker":                     {3: []byte("-FVE-FS-")},
		"NTFS":                          {8192: []byte("FILE0"), 3: []byte("NTFS    ")}, // damaged: Windows calls it raw
		"data of unknown kind from byt": {5*gibi - 1: {0}, 700: {7}},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, volume := rawRig(t, bytes)
			if fs, err := h.Volumes.FileSystem(t.Context(), volume); fs != "" || err != nil {
				t.Fatalf("%q, %v", fs, err)
			}
			wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition, volume, name)
			if losses := r.machine.Losses(); len(losses) > 0 {
				t.Error(losses)
			}
			if left, _ := os.ReadDir(r.state); len(left) > 0 {
				t.Errorf("%v left", left)
			}
		})
	}
}

func TestFormat_refusesWhatItCannotReadOrDoesNotKnow(t *testing.T) {
	r, h, volume := rawRig(t, nil)
	ctx := t.Context()
	for _, fileSystem := range []string{"ext4", "FAT32", "NTFS /q", "ReFS"} {
		wantError(t, h.Volumes.Format(ctx, volume, fileSystem), backend.ErrInvalid, "NTFS")
	}
	fault := r.machine.Inject(simulated.Fault{Call: "Device.ReadAt", At: 2, Action: simulated.Fail, Errno: win32.ErrorReadFault})
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrUnavailable, "ERROR_READ_FAULT (30)")
	fault.Remove()
	fault = r.machine.Inject(simulated.Fault{Call: "Volumes.Information", Action: simulated.Fail, Errno: win32.ErrorDiskCorrupt})
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrDataLoss, "ERROR_DISK_CORRUPT (1393)")
	fault.Remove()
	mustDo(t, h.Volumes.Format(ctx, volume, "ntfs"))
}

func TestFormat_refusesAReadOnlyDisk(t *testing.T) {
	r := newRig(t, simulated.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.ReadOnly = "data", true
	r.machine.MustAddDisk(spec)
	h := r.host()
	volume, err := onlyVolume(t.Context(), h)
	mustDo(t, err)
	wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition, "ERROR_WRITE_PROTECT (19)")
}

// A caller whose patience ended, and who asks again while the format is under way,
// is told that it succeeded; one who asks later is refused.
func TestFormat_aRepeatedCallThatWaitedIsNoSecondFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h, volume := rawRig(t, nil)
		r.machine.Inject(simulated.Fault{Call: "Volumes.Format", Action: simulated.Delay, For: time.Minute})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		results := make(chan error, 8)
		for range cap(results) {
			go func() { results <- h.Volumes.Format(t.Context(), volume, "") }()
		}
		if err := h.Volumes.Format(short, volume, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition)
		if losses := r.machine.Losses(); len(losses) > 0 {
			t.Error(losses)
		}
	})
}

// begun leaves what a format leaves that died: its record, and the first blocks.
func begun(t *testing.T, bytes map[int64][]byte) (*rig, hub.Host, string) {
	t.Helper()
	r, h, volume := rawRig(t, bytes)
	host := h.Volumes.(volumes)
	extent, err := host.whole(volume)
	mustDo(t, err)
	id, _, err := host.identify(volume, extent)
	mustDo(t, err)
	mustDo(t, host.records.write(formatRecord(volume), id))
	return r, h, volume
}

func TestFormat_finishesWhatItHadBegunAndNothingElse(t *testing.T) {
	half := map[int64][]byte{3: []byte("NTFS    "), 8192: []byte("FILE0")}
	t.Run("its own", func(t *testing.T) {
		r, h, volume := begun(t, half)
		mustDo(t, h.Volumes.Format(t.Context(), volume, ""))
		if fs, err := h.Volumes.FileSystem(t.Context(), volume); fs != "NTFS" || err != nil {
			t.Errorf("%q, %v", fs, err)
		}
		if left, _ := os.ReadDir(r.state); len(left) > 0 {
			t.Errorf("%v left", left)
		}
		wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition) // it is over now
	})
	t.Run("one that Windows takes for damaged", func(t *testing.T) {
		r, h, volume := begun(t, half)
		r.machine.Inject(simulated.Fault{Call: "Volumes.Information", Times: 1, Action: simulated.Fail, Errno: win32.ErrorFileCorrupt})
		mustDo(t, h.Volumes.Format(t.Context(), volume, ""))
	})
	for name, bytes := range map[string]map[int64][]byte{
		"a Linux filesystem that came since": {1080: {0x53, 0xef}, 10*gibi - 18*mebi - 1024: []byte("x")},
		"LUKS over the rest of the format":   {0: []byte("LUKS\xba\xbe"), 8192: []byte("FILE0")},
		"data of no kind":                    {500_000: {1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, volume := begun(t, bytes)
			wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition)
			if losses := r.machine.Losses(); len(losses) > 0 {
				t.Error(losses)
			}
		})
	}
	t.Run("a record of another disk", func(t *testing.T) {
		_, h, volume := rawRig(t, half)
		host := h.Volumes.(volumes)
		mustDo(t, host.records.write(formatRecord(volume), begunFormat{Volume: volume, Serial: "another"}))
		wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition)
	})
	t.Run("a damaged record", func(t *testing.T) {
		r, h, volume := rawRig(t, half)
		mustDo(t, os.WriteFile(r.state+"/"+formatRecord(volume)+".json", []byte("{"), 0o600))
		wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition)
	})
}

// A volume that is in use is never formatted again because of an old record.
func TestMount_endsWhatIsRecordedOfAFormat(t *testing.T) {
	r, h, volume := begun(t, nil)
	ctx := t.Context()
	r.machine.Inject(simulated.Fault{Call: "Volumes.Format", Times: 1, Action: simulated.FailAfter, Errno: win32.ErrorGenFailure})
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrUnavailable)
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	if left, _ := os.ReadDir(r.state); len(left) > 0 {
		t.Errorf("%v left", left)
	}
}

func TestMount_refusesWhatCannotBe(t *testing.T) {
	r := volumeRig(t, "NTFS")
	other := cloudDisk(10 * gibi)
	other.Serial, other.Style, other.FileSystem = "other", "data", "NTFS"
	r.machine.MustAddDisk(other)
	raw := other
	raw.Serial, raw.FileSystem = "raw", ""
	r.machine.MustAddDisk(raw)
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	second, third := r.machine.State().Disks[2].Volumes[0].Name, r.machine.State().Disks[3].Volumes[0].Name
	mustDo(t, r.machine.MkdirAll(kubeletDir+`\full`))
	mustDo(t, r.machine.WriteFile(kubeletDir+`\full\file`, 1))
	mustDo(t, r.machine.WriteFile(kubeletDir+`\file`, 1))
	mustDo(t, r.machine.MkdirAll(`C:\elsewhere`))
	mustDo(t, r.machine.Symlink(kubeletDir+`\link`, `C:\elsewhere`, true))
	for name, test := range map[string]struct {
		volume, path string
		want         error
	}{
		"a directory that is not empty": {volume, kubeletDir + `\full`, backend.ErrPrecondition},
		"a file":                        {volume, kubeletDir + `\file`, backend.ErrPrecondition},
		"a link (L-1)":                  {volume, kubeletDir + `\link`, backend.ErrPrecondition},
		"a path behind a link (L-1)":    {volume, kubeletDir + `\link\x`, backend.ErrPrecondition},
		"nothing":                       {volume, kubeletDir + `\nothing`, backend.ErrNotFound},
		"the root":                      {volume, kubeletDir, backend.ErrInvalid},
		"outside (D-5)":                 {volume, `C:\windows\x`, backend.ErrInvalid},
		"beside the root (D-4)":         {volume, kubeletDir + `-evil\x`, backend.ErrInvalid},
		"a raw volume":                  {third, stagingDir, backend.ErrPrecondition},
	} {
		if err := h.Volumes.Mount(ctx, test.volume, test.path); !errors.Is(err, test.want) {
			t.Errorf("%s: %v; want %v", name, err, test.want)
		}
		if err := h.Volumes.Unmount(ctx, test.volume, test.path); errors.Is(test.want, backend.ErrInvalid) && !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("unmounting %s: %v", name, err)
		}
	}
	for range 2 {
		mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	}
	wantError(t, h.Volumes.Mount(ctx, second, stagingDir), backend.ErrPrecondition, volume)
	wantError(t, h.Volumes.Unmount(ctx, second, stagingDir), backend.ErrPrecondition, volume)
	if at, err := h.Volumes.At(ctx, stagingDir); at != volume || err != nil {
		t.Errorf("%q, %v", at, err)
	}
}

// Windows says that the directory is not empty when somebody else was faster: the
// same volume there is fine, another one is not.
func TestMount_comparesWithWhatIsThereAlready(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	r.machine.Inject(simulated.Fault{Call: "Volumes.SetMountPoint", Times: 1, Action: simulated.FailAfter, Errno: win32.ErrorDirNotEmpty})
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	mustDo(t, h.Volumes.Unmount(ctx, volume, stagingDir))
	r.machine.Inject(simulated.Fault{Call: "Volumes.SetMountPoint", Times: 1, Action: simulated.Fail, Errno: win32.ErrorDirNotEmpty})
	wantError(t, h.Volumes.Mount(ctx, volume, stagingDir), backend.ErrPrecondition, "ERROR_DIR_NOT_EMPTY (145)")
}

func TestUnmount_isFineWhereNothingIsMounted(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	mustDo(t, h.Volumes.Unmount(ctx, volume, stagingDir))
	mustDo(t, h.Volumes.Unmount(ctx, volume, kubeletDir+`\never\was`))
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	mustDo(t, r.machine.RemoveDisk(1)) // pulled out
	mustDo(t, h.Volumes.Unmount(ctx, volume, stagingDir))
	if _, err := h.Volumes.At(ctx, stagingDir); !errors.Is(err, backend.ErrNotFound) {
		t.Error(err)
	}
}

// The cache is written before the volume is taken off, and a failed write keeps
// it mounted.
func TestUnmount_flushesFirst(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	fault := r.machine.Inject(simulated.Fault{Call: "Device.Flush", Action: simulated.Fail, Errno: win32.ErrorWriteFault})
	wantError(t, h.Volumes.Unmount(ctx, volume, stagingDir), backend.ErrUnavailable, "ERROR_WRITE_FAULT (29)")
	wantError(t, h.Volumes.Flush(ctx, volume), backend.ErrUnavailable, "ERROR_WRITE_FAULT (29)")
	if at, err := h.Volumes.At(ctx, stagingDir); at != volume || err != nil {
		t.Errorf("%q, %v", at, err)
	}
	fault.Remove()
	r.machine.Inject(simulated.Fault{Call: "Device.Flush", Times: 1, Action: simulated.Fail, Errno: win32.ErrorWriteProtect})
	mustDo(t, h.Volumes.Unmount(ctx, volume, stagingDir)) // nothing to write on a read-only disk
	mustDo(t, h.Volumes.Flush(ctx, volume))
}

func TestStats_countWhatIsUsed(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	before, err := h.Volumes.Stats(ctx, volume)
	mustDo(t, err)
	mustDo(t, r.machine.WriteFile(stagingDir+`\file`, mebi))
	after, err := h.Volumes.Stats(ctx, volume)
	if err != nil || after.Total != before.Total || after.Used-before.Used != mebi {
		t.Errorf("%+v was %+v, %v", after, before, err)
	}
}

// D-11 and the bad sizes of ResizeVolume.
func TestResize_byAnyAmountAndNeverBack(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	state := func() simulated.StateVolume { return r.machine.State().Disks[1].Volumes[0] }
	full := state()
	for _, size := range []int64{0, 1, gibi, full.Length, 10 * gibi} {
		got, err := h.Volumes.Resize(ctx, volume, size)
		if err != nil || got != full.Total || state().Length < full.Length {
			t.Errorf("to %d: %d, %v; it had %d", size, got, err, full.Total)
		}
	}
	_, err = h.Volumes.Resize(ctx, volume, -1)
	wantError(t, err, backend.ErrInvalid)
	_, err = h.Volumes.Resize(ctx, volume, 10*gibi+1)
	wantError(t, err, backend.ErrOutOfRange, "10737418241", "10737418240")

	mustDo(t, r.machine.GrowDisk(1, 10*gibi+4*mebi))
	one := state().Length + mebi // one mebibyte failed before upstream's 1.2.0, and is silently ignored since
	got, err := h.Volumes.Resize(ctx, volume, one)
	if err != nil || state().Length != one || got <= full.Total {
		t.Errorf("%d, %v, %+v", got, err, state())
	}
	got, err = h.Volumes.Resize(ctx, volume, one+4096)
	if err != nil || state().Length != one+4096 {
		t.Errorf("%d, %v, %+v", got, err, state())
	}
	got, err = h.Volumes.Resize(ctx, volume, 0)
	if err != nil || state().Length < one+2*mebi || got != state().Total {
		t.Errorf("%d, %v, %+v", got, err, state())
	}
}

// A crash between the partition's growth and the filesystem's is finished by the
// second alone, whatever size is asked for.
func TestResize_finishesTheFilesystemAlone(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	mustDo(t, r.machine.GrowDisk(1, 20*gibi))
	fault := r.machine.Inject(simulated.Fault{Call: "FSCTL_EXTEND_VOLUME", Action: simulated.DieBefore})
	if _, err := h.Volumes.Resize(ctx, volume, 0); !errors.Is(err, simulated.ErrDied) {
		t.Fatal(err)
	}
	fault.Remove()
	stop := r.machine.Record()
	size, err := r.host().Volumes.Resize(ctx, volume, 5*gibi)
	if err != nil || size < 20*gibi-20*mebi {
		t.Errorf("%d, %v", size, err)
	}
	for _, call := range stop() {
		if call.Name == "IOCTL_DISK_GROW_PARTITION" {
			t.Error("the partition was grown again")
		}
	}
}

func TestResize_refusesWhatCannotGrow(t *testing.T) {
	ctx := t.Context()
	for _, fileSystem := range []string{"", "FAT32", "ReFS"} {
		r := volumeRig(t, fileSystem)
		h := r.host()
		volume, err := onlyVolume(ctx, h)
		mustDo(t, err)
		_, err = h.Volumes.Resize(ctx, volume, 0)
		wantError(t, err, backend.ErrPrecondition, "only NTFS grows")
	}
	r := newRig(t, simulated.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.FileSystem, spec.ReadOnly, spec.DataSize = "data", "NTFS", true, gibi
	r.machine.MustAddDisk(spec)
	h := r.host()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	_, err = h.Volumes.Resize(ctx, volume, 0)
	wantError(t, err, backend.ErrPrecondition, "ERROR_WRITE_PROTECT (19)")
}

// Windows takes a while to move the end of a GPT; one that it never moves is an
// error and no success without growth.
func TestResize_waitsForTheTableToFollowTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for lag, want := range map[int]error{3: nil, 1000: backend.ErrUnavailable} {
			r := newRig(t, simulated.Options{UsableLag: lag})
			spec := cloudDisk(10 * gibi)
			spec.Style, spec.FileSystem = "data", "NTFS"
			r.machine.MustAddDisk(spec)
			h := r.host()
			volume, err := onlyVolume(t.Context(), h)
			mustDo(t, err)
			mustDo(t, r.machine.GrowDisk(1, 20*gibi))
			for _, wanted := range []int64{15 * gibi, 0} {
				size, err := h.Volumes.Resize(t.Context(), volume, wanted)
				if !errors.Is(err, want) || want == nil && size < 15*gibi-mebi {
					t.Errorf("lag %d, to %d: %d, %v", lag, wanted, size, err)
				}
			}
		}
	})
}

// A volume whose disk hangs answers nobody, and nobody else waits.
func TestVolumes_aCallerOfAHungVolumeIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		other := cloudDisk(10 * gibi)
		other.Serial, other.Style, other.FileSystem = "other", "data", "NTFS"
		r.machine.MustAddDisk(other)
		h := r.host()
		volume, err := onlyVolume(t.Context(), h)
		mustDo(t, err)
		hung := r.machine.Inject(simulated.Fault{Target: cloudSerial, Action: simulated.Hang})
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if _, err := h.Volumes.FileSystem(ctx, volume); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if n := hung.Waiting(); n > questionsPerKey {
			t.Errorf("%d threads hang", n)
		}
		mustDo(t, h.Volumes.Mount(t.Context(), r.machine.State().Disks[2].Volumes[0].Name, stagingDir))
		if names, err := h.Volumes.OnDisk(t.Context(), 2, 0); len(names) != 1 || err != nil {
			t.Error(names, err)
		}
		hung.Release()
	})
}
