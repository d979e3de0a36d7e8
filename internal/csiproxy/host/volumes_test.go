package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const noSuchVolume = `\\?\Volume{00000000-0000-0000-0000-000000000001}\`

// A volume ID is checked by every operation before anything else.
func TestVolumes_rejectAnInvalidVolumeID(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	stop := r.machine.Record()
	for _, id := range []string{"", `C:\`, `\\.\PhysicalDrive0`, `\\?\Volume{x}\`, noSuchVolume + "x"} {
		for name, err := range map[string]error{
			"FileSystem": second(h.Volumes.FileSystem(ctx, id)), "Stats": second(h.Volumes.Stats(ctx, id)),
			"DiskOf": second(h.Volumes.DiskOf(ctx, id)),
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
		"Format": h.Volumes.Format(ctx, noSuchVolume, ""), "Mount": h.Volumes.Mount(ctx, noSuchVolume, stagingDir),
		"Flush": h.Volumes.Flush(ctx, noSuchVolume),
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, err, backend.ErrNotFound, noSuchVolume, "_NOT_FOUND (")
		})
	}
	mustDo(t, h.Volumes.Unmount(ctx, noSuchVolume, stagingDir)) // it is not mounted there
}

func TestVolumes_aSpannedOneIsRefused(t *testing.T) {
	r := newRig(t, windows.Options{})
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
		"a link":                        {volume, kubeletDir + `\link`, backend.ErrPrecondition},
		"a path behind a link":          {volume, kubeletDir + `\link\x`, backend.ErrPrecondition},
		"nothing":                       {volume, kubeletDir + `\nothing`, backend.ErrNotFound},
		"the root":                      {volume, kubeletDir, backend.ErrInvalid},
		"outside":                       {volume, `C:\windows\x`, backend.ErrInvalid},
		"next to the root":              {volume, kubeletDir + `-evil\x`, backend.ErrInvalid},
		"a raw volume":                  {third, stagingDir, backend.ErrPrecondition},
	} {
		if err := h.Volumes.Mount(ctx, test.volume, test.path); !errors.Is(err, test.want) {
			t.Errorf("%s: %v; want %v", name, err, test.want)
		}
		if err := h.Volumes.Unmount(ctx, test.volume, test.path); errors.Is(test.want, backend.ErrInvalid) &&
			!errors.Is(err, backend.ErrInvalid) {
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

// Windows says that the directory is not empty when another program was faster: the
// same volume there is fine, another one is not.
func TestMount_comparesWithWhatIsThereAlready(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	r.machine.Inject(windows.Fault{Call: "Volumes.SetMountPoint", Times: 1, Action: windows.FailAfter, Errno: win32.ErrorDirNotEmpty})
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	mustDo(t, h.Volumes.Unmount(ctx, volume, stagingDir))
	r.machine.Inject(windows.Fault{Call: "Volumes.SetMountPoint", Times: 1, Action: windows.Fail, Errno: win32.ErrorDirNotEmpty})
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
	fault := r.machine.Inject(windows.Fault{Call: "Device.Flush", Action: windows.Fail, Errno: win32.ErrorWriteFault})
	wantError(t, h.Volumes.Unmount(ctx, volume, stagingDir), backend.ErrUnavailable, "ERROR_WRITE_FAULT (29)")
	wantError(t, h.Volumes.Flush(ctx, volume), backend.ErrUnavailable, "ERROR_WRITE_FAULT (29)")
	if at, err := h.Volumes.At(ctx, stagingDir); at != volume || err != nil {
		t.Errorf("%q, %v", at, err)
	}
	fault.Remove()
	r.machine.Inject(windows.Fault{Call: "Device.Flush", Times: 1, Action: windows.Fail, Errno: win32.ErrorWriteProtect})
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

// A volume whose disk hangs answers no call, and no other caller waits.
func TestVolumes_aCallerOfAHungVolumeIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := volumeRig(t, "NTFS")
		other := cloudDisk(10 * gibi)
		other.Serial, other.Style, other.FileSystem = "other", "data", "NTFS"
		r.machine.MustAddDisk(other)
		h := r.host()
		volume, err := onlyVolume(t.Context(), h)
		mustDo(t, err)
		hung := r.machine.Inject(windows.Fault{Target: cloudSerial, Action: windows.Hang})
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
