package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// dataOffset is where the simulated machine begins a prepared data partition.
const dataOffset = 17 * mebi

// rawRig has a raw volume with some bytes on it.
func rawRig(t *testing.T, parts map[int64][]byte) (*rig, api.Host, string) {
	t.Helper()
	r := newRig(t, windows.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.Bytes = "data", map[int64][]byte{}
	for offset, data := range parts {
		spec.Bytes[dataOffset+offset] = data
	}
	r.machine.MustAddDisk(spec)
	mustDo(t, r.machine.MkdirAll(stagingDir))
	h := r.host()
	volume, err := onlyVolume(t.Context(), h)
	mustDo(t, err)
	return r, h, volume
}

// A volume with a filesystem, or any other content, is not formatted for any caller.
func TestFormat_refusesWhateverIsNotBlank(t *testing.T) {
	for _, fileSystem := range []string{"NTFS", "FAT32", "exFAT", "ReFS"} {
		r := volumeRig(t, fileSystem)
		h := r.host()
		volume, err := onlyVolume(t.Context(), h)
		mustDo(t, err)
		wantError(t, h.Volumes.Format(t.Context(), volume, "NTFS"), backend.ErrPrecondition, volume, fileSystem)
	}
	for name, data := range map[string]map[int64][]byte{
		"ext2, ext3 or ext4":            {1080: {0x53, 0xef}},
		"XFS":                           {0: []byte("XFSB")},
		"LUKS":                          {0: []byte("LUKS\xba\xbe")},
		"BitLocker":                     {3: []byte("-FVE-FS-")},
		"NTFS":                          {8192: []byte("FILE0"), 3: []byte("NTFS    ")}, // damaged: Windows calls it raw
		"data of unknown kind from byt": {5*gibi - 1: {0}, 700: {7}},
		// Only a copy of a superblock is left, or only files.
		"data of unknown kind from byte 8389688":   {8*mebi + 1080: {0x53, 0xef}},
		"data of unknown kind from byte 402653240": {3*128*mebi + 56: {0x53, 0xef}},
		"data of unknown kind":                     {5*gibi + 3*mebi + 512: bytes.Repeat([]byte("text"), 3<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, volume := rawRig(t, data)
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
	fault := r.machine.Inject(windows.Fault{Call: "Device.ReadAt", At: 2, Action: windows.Fail, Errno: win32.ErrorReadFault})
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrUnavailable, "ERROR_READ_FAULT (30)")
	fault.Remove()
	fault = r.machine.Inject(windows.Fault{Call: "Volumes.Information", Action: windows.Fail, Errno: win32.ErrorDiskCorrupt})
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrDataLoss, "ERROR_DISK_CORRUPT (1393)")
	fault.Remove()
	mustDo(t, h.Volumes.Format(ctx, volume, "ntfs"))
}

func TestFormat_refusesAReadOnlyDisk(t *testing.T) {
	r := newRig(t, windows.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.ReadOnly = "data", true
	r.machine.MustAddDisk(spec)
	h := r.host()
	volume, err := onlyVolume(t.Context(), h)
	mustDo(t, err)
	wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition, "ERROR_WRITE_PROTECT (19)")
}

// A caller whose deadline passed and that repeats the call during the format gets
// its success. A call after the format is rejected.
func TestFormat_aRepeatedCallThatWaitedDoesNotFormatAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h, volume := rawRig(t, nil)
		r.machine.Inject(windows.Fault{Call: "Volumes.Format", Action: windows.Delay, For: time.Minute})
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

// begun writes the rest of an interrupted format: its intent, and the first blocks.
func begun(t *testing.T, bytes map[int64][]byte) (*rig, api.Host, string) {
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
	t.Run("its own", inBubble(func(t *testing.T) {
		r, h, volume := begun(t, half)
		mustDo(t, h.Volumes.Format(t.Context(), volume, ""))
		if fs, err := h.Volumes.FileSystem(t.Context(), volume); fs != "NTFS" || err != nil {
			t.Errorf("%q, %v", fs, err)
		}
		if left, _ := os.ReadDir(r.state); len(left) > 0 {
			t.Errorf("%v left", left)
		}
		wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrPrecondition) // the format is complete now
	}))
	t.Run("one that Windows takes for damaged", inBubble(func(t *testing.T) {
		r, h, volume := begun(t, half)
		damaged := r.machine.Inject(windows.Fault{Call: "Volumes.Information", Action: windows.Fail, Errno: win32.ErrorFileCorrupt})
		// The first call, as always, reports that there is something to format.
		if fs, err := h.Volumes.FileSystem(t.Context(), volume); fs != "" || err != nil {
			t.Errorf("%q, %v", fs, err)
		}
		damaged.Remove()
		r.machine.Inject(windows.Fault{Call: "Volumes.Information", Times: 1, Action: windows.Fail, Errno: win32.ErrorFileCorrupt})
		mustDo(t, h.Volumes.Format(t.Context(), volume, ""))
	}))
	t.Run("a damaged one that is not its own", func(t *testing.T) {
		r, h, volume := rawRig(t, half)
		r.machine.Inject(windows.Fault{Call: "Volumes.Information", Action: windows.Fail, Errno: win32.ErrorFileCorrupt})
		_, err := h.Volumes.FileSystem(t.Context(), volume)
		wantError(t, err, backend.ErrDataLoss)
	})
	for name, data := range map[string]map[int64][]byte{
		"a Linux filesystem that came since": {1080: {0x53, 0xef}, 10*gibi - 18*mebi - 1024: []byte("x")},
		"LUKS over the rest of the format":   {0: []byte("LUKS\xba\xbe"), 8192: []byte("FILE0")},
		"data of no kind":                    {500_000: {1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, volume := begun(t, data)
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
	r.machine.Inject(windows.Fault{Call: "Volumes.Format", Times: 1, Action: windows.FailAfter, Errno: win32.ErrorGenFailure})
	wantError(t, h.Volumes.Format(ctx, volume, ""), backend.ErrUnavailable)
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	if left, _ := os.ReadDir(r.state); len(left) > 0 {
		t.Errorf("%v left", left)
	}
}

// WMI lists a volume some time after it has arrived, and Windows recognises a new
// filesystem some time after the format: both are waited for, within bounds.
func TestFormat_waitsForWhatArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h, volume := rawRig(t, nil)
		r.machine.SetOptions(func(o *windows.Options) { o.ListDelay, o.FormatDelay = 5*time.Second, 2*time.Second })
		mustDo(t, h.Volumes.Format(t.Context(), volume, ""))
		if fs, err := h.Volumes.FileSystem(t.Context(), volume); fs != "NTFS" || err != nil {
			t.Errorf("%q, %v", fs, err)
		}
		if losses := r.machine.Losses(); len(losses) > 0 {
			t.Errorf("lost: %q", losses)
		}

		r, h, volume = rawRig(t, nil)
		r.machine.SetOptions(func(o *windows.Options) { o.ListDelay = time.Hour })
		start := time.Now()
		wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrUnavailable, volume, "WMI")
		if took := time.Since(start); took > 2*volumeLimit {
			t.Errorf("it gave up after %s", took)
		}
	})
}

// The results of MSFT_Volume.Format are numbers of their own.
func TestFormat_reportsTheErrorOfTheStorageProvider(t *testing.T) {
	r, h, volume := rawRig(t, nil)
	remove := r.machine.Hook(func(c windows.Call) {
		if c.Name == "Volumes.Format" { // another program locks the volume in the last moment
			device, err := r.machine.Calls().Volumes.Open(volume, win32.ReadWrite)
			mustDo(t, err)
			_, err = device.Control(win32.FsctlLockVolume, nil, nil)
			mustDo(t, err)
		}
	})
	defer remove()
	wantError(t, h.Volumes.Format(t.Context(), volume, ""), backend.ErrDenied, "storage result 40001", "access denied")
}
