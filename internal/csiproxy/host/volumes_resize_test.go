package host

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// Growth that is none, and the bad sizes of ResizeVolume.
func TestResize_byAnyAmountAndNeverBack(t *testing.T) {
	r := volumeRig(t, "NTFS")
	h, ctx := r.host(), t.Context()
	volume, err := onlyVolume(ctx, h)
	mustDo(t, err)
	state := func() windows.StateVolume { return r.machine.State().Disks[1].Volumes[0] }
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
	fault := r.machine.Inject(windows.Fault{Call: "FSCTL_EXTEND_VOLUME", Action: windows.DieBefore})
	if _, err := h.Volumes.Resize(ctx, volume, 0); !errors.Is(err, windows.ErrDied) {
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
	r := newRig(t, windows.Options{})
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
			r := newRig(t, windows.Options{UsableLag: lag})
			spec := cloudDisk(10 * gibi)
			spec.Style, spec.FileSystem = "data", "NTFS"
			r.machine.MustAddDisk(spec)
			h := r.host()
			volume, err := onlyVolume(t.Context(), h)
			mustDo(t, err)
			mustDo(t, r.machine.GrowDisk(1, 20*gibi))
			for _, desired := range []int64{15 * gibi, 0} {
				size, err := h.Volumes.Resize(t.Context(), volume, desired)
				if !errors.Is(err, want) || want == nil && size < 15*gibi-mebi {
					t.Errorf("lag %d, to %d: %d, %v", lag, desired, size, err)
				}
			}
		}
	})
}
