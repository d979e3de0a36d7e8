package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

func TestList_reportsWhatDriversSearchFor(t *testing.T) {
	r := newRig(t, windows.Options{SANPolicy: windows.OfflineShared})
	r.machine.MustAddDisk(windows.DiskSpec{Serial: "  padded  ", Page83: "600601601234ABCD", Size: gibi,
		Bus: win32.BusSAS, AddressNeedsRead: true, Location: &win32.SCSIAddress{Port: 3, Path: 1, Target: 2, LUN: 7}})
	r.machine.MustAddDisk(windows.DiskSpec{Size: gibi, IDs: win32.DeviceIDs{
		{CodeSet: win32.CodeSetASCII, Association: win32.AssociationPort, Identifier: []byte("a port's")},
		{CodeSet: win32.CodeSetASCII, Association: win32.AssociationDevice, Identifier: []byte("Google  persistent-disk-1 ")},
	}})
	disks, err := r.host().Disks.List(t.Context())
	mustDo(t, err)
	if len(disks) != 3 {
		t.Fatalf("%+v", disks)
	}
	want := api.Disk{
		Number: 1, Size: gibi, SerialNumber: "padded", Page83: "600601601234abcd", Online: false, ReadOnly: true,
		Location:    &api.DiskLocation{Adapter: "3", Bus: "1", Target: "2", LUN: "7"},
		Identifiers: []api.DiskIdentifier{{CodeSet: 1, Type: 3, Value: "600601601234abcd"}},
	}
	if diff := cmp.Diff(want, disks[1]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	all := []api.DiskIdentifier{{CodeSet: 2, Association: 1, Value: "a port's"}, {CodeSet: 2, Value: "Google  persistent-disk-1"}}
	if diff := cmp.Diff(all, disks[2].Identifiers); diff != "" {
		t.Errorf("identifiers -want +got:\n%s", diff)
	}
	if got := disks[2]; got.Page83 != "Google  persistent-disk-1" || got.Location != nil ||
		got.SerialNumber != "" || !got.Online || got.Problem != nil {
		t.Errorf("%+v", got)
	}
}

// One bad disk does not fail the list.
func TestList_givesABadDiskItsProblem(t *testing.T) {
	r := newRig(t, windows.Options{})
	r.machine.MustAddDisk(cloudDisk(gibi))
	r.machine.MustAddDisk(windows.DiskSpec{Serial: "broken", Size: gibi})
	h := r.host()
	_, err := h.Disks.List(t.Context())
	mustDo(t, err)
	r.machine.Inject(windows.Fault{Target: "broken", Action: windows.Fail, Errno: win32.ErrorIODevice})
	disks, err := h.Disks.List(t.Context())
	mustDo(t, err)
	if len(disks) != 3 || disks[1].SerialNumber != cloudSerial || disks[1].Problem != nil {
		t.Fatalf("%+v", disks)
	}
	wantError(t, disks[2].Problem, backend.ErrUnavailable, "ERROR_IO_DEVICE (1117)")
}

// The number that a disk had when it last answered may be another disk's by now.
// A list that takes the two for one hides a disk that may have the caller's volume.
func TestList_keepsAnUnreadableDiskWhoseOldNumberIsAnothers(t *testing.T) {
	r := newRig(t, windows.Options{})
	first := r.machine.MustAddDisk(windows.DiskSpec{Serial: "first", Size: gibi})
	second := r.machine.MustAddDisk(windows.DiskSpec{Serial: "second", Size: gibi})
	h := r.host()
	_, err := h.Disks.List(t.Context())
	mustDo(t, err)
	_, err = r.machine.MoveDisk(first)
	mustDo(t, err)
	moved, err := r.machine.MoveDisk(second)
	mustDo(t, err)
	if moved != first {
		t.Fatalf("the second disk became %d; want %d, which was the first's", moved, first)
	}
	for _, call := range []string{"Devices.OpenInterface", "IOCTL_STORAGE_GET_DEVICE_NUMBER", "IOCTL_STORAGE_QUERY_PROPERTY"} {
		fault := r.machine.Inject(windows.Fault{Call: call, Target: "first", Action: windows.Fail, Errno: win32.ErrorIODevice})
		disks, err := h.Disks.List(t.Context())
		mustDo(t, err)
		fault.Remove()
		numbers, unidentified := map[uint32]bool{}, 0
		for _, disk := range disks {
			if numbers[disk.Number] {
				t.Errorf("%s: two disks are listed as number %d: %+v", call, disk.Number, disks)
			}
			numbers[disk.Number] = true
			if disk.IsUnidentified() {
				unidentified++
			}
		}
		if len(disks) != 3 || unidentified != 1 || disks[1].SerialNumber != "second" || disks[1].Problem != nil {
			t.Errorf("%s fails: %+v; want the second disk and one that is unidentified", call, disks)
		}
	}
}

// A disk hidden from the list because opening it says that it is not there, while
// Windows lists its interface, is one that cannot be read.
func TestList_keepsADiskWhoseInterfaceIsListed(t *testing.T) {
	r := newRig(t, windows.Options{})
	r.machine.MustAddDisk(cloudDisk(gibi))
	h := r.host()
	for _, call := range []string{"Devices.OpenInterface", "IOCTL_STORAGE_GET_DEVICE_NUMBER"} {
		for _, errno := range []win32.Errno{win32.ErrorFileNotFound, win32.ErrorNotFound, win32.ErrorDevNotExist} {
			fault := r.machine.Inject(windows.Fault{Call: call, Target: cloudSerial, Action: windows.Fail, Errno: errno})
			disks, err := h.Disks.List(t.Context())
			mustDo(t, err)
			fault.Remove()
			if len(disks) != 2 || !disks[1].IsUnidentified() {
				t.Errorf("%s answers %v: %+v; want an unidentified disk", call, errno, disks)
			}
		}
	}
}

// Two disks that say the same number have swapped it while they were listed: each
// may be the caller's.
func TestUnify_neverTakesTwoDisksForOne(t *testing.T) {
	lost := errors.New("lost")
	rapid.Check(t, func(t *rapid.T) {
		var found []api.Disk
		for range rapid.IntRange(0, 5).Draw(t, "disks") {
			disk := api.Disk{Number: rapid.SampledFrom([]uint32{1, 2, api.UnknownNumber}).Draw(t, "number")}
			disk.SerialNumber = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "serial")
			if disk.Number == api.UnknownNumber || rapid.Bool().Draw(t, "broken") {
				disk.Problem = lost
			}
			found = append(found, disk)
		}
		listed := unify(found)
		numbers, identities, unidentified := map[uint32]bool{}, map[api.Identity]bool{}, 0
		for _, disk := range listed {
			if numbers[disk.Number] && disk.Number != api.UnknownNumber {
				t.Errorf("two disks have the number %d: %+v", disk.Number, listed)
			}
			if disk.Number == api.UnknownNumber && disk.Problem == nil {
				t.Errorf("a disk without a number has no problem: %+v", disk)
			}
			numbers[disk.Number], identities[disk.Identity()] = true, true
			if disk.IsUnidentified() {
				unidentified++
			}
		}
		want := 0
		for _, disk := range found {
			if !identities[disk.Identity()] {
				t.Errorf("%+v is not in %+v", disk, listed)
			}
			if disk.IsUnidentified() {
				want++
			}
		}
		if unidentified < want {
			t.Errorf("%d unidentified disks in %+v; %d were found: %+v", unidentified, listed, want, found)
		}
	})
}

// A hung disk delays one list, for a bounded time. Callers of other disks do not
// wait for it, and callers of this disk are answered when their contexts end.
func TestDisks_aHungDiskBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, windows.Options{})
		for i := range 8 {
			r.machine.MustAddDisk(windows.DiskSpec{Serial: fmt.Sprintf("disk%d", i+1), Size: 10 * gibi})
		}
		h := r.host()
		_, err := h.Disks.List(t.Context())
		mustDo(t, err)
		hung := r.machine.Inject(windows.Fault{Target: "disk3", Action: windows.Hang})

		start := time.Now()
		disks, err := h.Disks.List(t.Context())
		mustDo(t, err)
		if took := time.Since(start); took > 2*questionTimeout {
			t.Errorf("the list took %s", took)
		}
		if len(disks) != 9 || !errors.Is(disks[3].Problem, backend.ErrUnavailable) || disks[4].Problem != nil {
			t.Errorf("%+v", disks)
		}
		start = time.Now()
		if _, err = h.Disks.List(t.Context()); err != nil || time.Since(start) > time.Second {
			t.Errorf("the second list took %s, %v", time.Since(start), err)
		}

		start = time.Now()
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				number := uint32(i%8) + 1
				volume, err := h.Disks.Partition(ctx, number, api.Identity{})
				switch {
				case number == 3 && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("the hung disk answered %q, %v", volume, err)
				case number == 3:
				case err != nil || volume == "":
					t.Errorf("disk %d: %q, %v", number, volume, err)
				case time.Since(start) > 20*time.Second:
					t.Errorf("disk %d took %s", number, time.Since(start))
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > 61*time.Second {
			t.Errorf("a caller was answered after %s", took)
		}
		hung.Release()
		synctest.Wait()
		if _, err := h.Disks.Partition(t.Context(), 3, api.Identity{}); err != nil {
			t.Errorf("after the disk came back: %v", err)
		}
		if losses := r.machine.Losses(); len(losses) > 0 {
			t.Error(losses)
		}
	})
}

// 64 callers at once, on eight disks and one share: none fails, none starves.
func TestHost_sixtyFourCallersAtOnce(t *testing.T) {
	r, h := smbRig(t)
	for i := range 8 {
		r.machine.MustAddDisk(windows.DiskSpec{Serial: fmt.Sprintf("disk%d", i+1), Size: 10 * gibi})
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			ctx, number := t.Context(), uint32(i%8)+1
			stage := fmt.Sprintf(`%s\plugins\driver\%d`, kubeletDir, number)
			volume, err := h.Disks.Partition(ctx, number, api.Identity{})
			if err == nil {
				err = h.Filesystem.Mkdir(ctx, stage)
			}
			if err == nil {
				if err = h.Volumes.Format(ctx, volume, "NTFS"); errors.Is(err, backend.ErrPrecondition) {
					err = nil // another caller has just done it
				}
			}
			if err == nil {
				err = h.Volumes.Mount(ctx, volume, stage)
			}
			if err == nil {
				_, err = h.Disks.List(ctx)
			}
			if err == nil {
				err = h.Disks.Rescan(ctx)
			}
			if err == nil {
				err = h.SMB.Mount(ctx, alice(at(fmt.Sprint(i))))
			}
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if losses := r.machine.Losses(); len(losses) > 0 {
		t.Error(losses)
	}
	mustDo(t, r.machine.Check())
}

// An instance of AWS has up to 128 attachments, and numbers of disks are not dense.
func TestList_findsDisksOfAnyNumberWithoutTheirInterfaces(t *testing.T) {
	for _, gap := range []uint32{0, 37, 100_000} {
		r := newRig(t, windows.Options{NumberGap: gap})
		want := []string{"SYSTEM"}
		for i := range 130 {
			want = append(want, fmt.Sprintf("disk%d", i))
			r.machine.MustAddDisk(windows.DiskSpec{Serial: want[i+1], Size: gibi})
		}
		r.machine.Inject(windows.Fault{Call: "Devices.Interfaces", Action: windows.Fail, Errno: win32.ErrorGenFailure})
		disks, err := r.host().Disks.List(t.Context())
		mustDo(t, err)
		var serials []string
		for _, disk := range disks {
			serials = append(serials, disk.SerialNumber)
		}
		if diff := cmp.Diff(want, serials); diff != "" {
			t.Errorf("disks, %d numbers apart, -want +got:\n%s", gap+1, diff)
		}
	}
}

func TestList_isAnErrorIfWindowsListsNeitherInterfacesNorNames(t *testing.T) {
	r := newRig(t, windows.Options{})
	h := r.host()
	r.machine.Inject(windows.Fault{Call: "Devices.Interfaces", Action: windows.Fail, Errno: win32.ErrorGenFailure})
	r.machine.Inject(windows.Fault{Call: "Devices.Numbers", Action: windows.Fail, Errno: win32.ErrorAccessDenied})
	_, err := h.Disks.List(t.Context())
	wantError(t, err, backend.ErrDenied, "ERROR_ACCESS_DENIED (5)")
}

func TestList_opensDisksByNumberIfWindowsListsNoInterfaces(t *testing.T) {
	r := newRig(t, windows.Options{})
	r.machine.MustAddDisk(cloudDisk(gibi))
	r.machine.MustAddDisk(windows.DiskSpec{Serial: "broken", Size: gibi, Broken: win32.ErrorIODevice})
	h := r.host()
	r.machine.Inject(windows.Fault{Call: "Devices.Interfaces", Action: windows.Fail, Errno: win32.ErrorGenFailure})
	disks, err := h.Disks.List(t.Context())
	if err != nil || len(disks) != 3 || disks[1].SerialNumber != cloudSerial || disks[2].Problem == nil {
		t.Errorf("%+v, %v", disks, err)
	}
}

func TestRescan_findsNewDisksAndNewSizes(t *testing.T) {
	r := newRig(t, windows.Options{})
	h, ctx := r.host(), t.Context()
	r.machine.MustAddDisk(cloudDisk(10 * gibi))
	r.machine.MustAddDisk(windows.DiskSpec{Serial: "late", Size: gibi, NeedsRescan: true})
	mustDo(t, r.machine.GrowDisk(1, 20*gibi))
	if size, err := h.Disks.Size(ctx, 1); size != 10*gibi || err != nil {
		t.Errorf("%d, %v before the rescan", size, err)
	}
	mustDo(t, h.Disks.Rescan(ctx))
	if size, err := h.Disks.Size(ctx, 1); size != 20*gibi || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	if disks, err := h.Disks.List(ctx); len(disks) != 3 || err != nil {
		t.Errorf("%+v, %v", disks, err)
	}
	r.machine.Inject(windows.Fault{Call: "Devices.Reenumerate", Times: 1, Action: windows.Fail, Errno: win32.ErrorAccessDenied})
	wantError(t, h.Disks.Rescan(ctx), backend.ErrDenied, "ERROR_ACCESS_DENIED (5)")
}

func TestDisks_anUnknownOneIsNotFound(t *testing.T) {
	h, ctx := newRig(t, windows.Options{}).host(), t.Context()
	_, err := h.Disks.Partition(ctx, 9, api.Identity{})
	wantError(t, err, backend.ErrNotFound, "disk 9", "ERROR_FILE_NOT_FOUND (2)")
	_, err = h.Disks.Size(ctx, 9)
	wantError(t, err, backend.ErrNotFound, "disk 9")
	_, err = h.Disks.Online(ctx, 9)
	wantError(t, err, backend.ErrNotFound, "disk 9")
	wantError(t, h.Disks.SetOnline(ctx, 9, api.Identity{}, true), backend.ErrNotFound, "disk 9")
	_, err = h.Volumes.OnDisk(ctx, 9, 0)
	wantError(t, err, backend.ErrNotFound, "disk 9")
}
