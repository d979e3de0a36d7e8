package groups

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
)

// Volumes in all versions, each with the names and types that it had.
func TestVolumeVersions_areThoseOfTheWire(t *testing.T) {
	ids := Message(Text(1, VolumeID), Text(1, `\\?\Volume{1}\`))
	stats := Message(Number(1, 5<<30), Number(2, 300))
	id := Text(1, VolumeID)

	alpha1 := []Exchange{
		Sent("ListVolumesOnDisk", Text(1, "7")).Asks("OnDisk 7 partition 0").Answers(ids),
		Sent("MountVolume", id, Text(2, path)).Asks("Mount " + VolumeID + " at " + path),
		Sent("DismountVolume", id, Text(2, path)).Asks("Unmount " + VolumeID + " at " + path),
		Sent("IsVolumeFormatted", id).Asks("FileSystem " + VolumeID).Answers(Yes(1)),
		Sent("FormatVolume", id).Asks("Format " + VolumeID + ` ""`),
		Sent("ResizeVolume", id, Number(2, 1<<40)).Asks("Resize " + VolumeID + " 1099511627776"),
		Sent("ResizeVolume", id).Asks("Resize " + VolumeID + " 0"),
	}
	beta1 := slices.Concat(alpha1, []Exchange{
		Sent("VolumeStats", id).Asks("Stats " + VolumeID).Answers(stats),
		Sent("GetVolumeDiskNumber", id).Asks("DiskOf " + VolumeID).Answers(Number(1, 4294967295)),
		Sent("GetVolumeIDFromMount", Text(1, path)).Asks("At " + path).Answers(id),
	})
	cache := []Exchange{Sent("WriteVolumeCache", id).Asks("Flush " + VolumeID)}
	beta3 := slices.Concat(cache, []Exchange{
		Sent("ListVolumesOnDisk", Number(1, 7), Number(2, 3)).Asks("OnDisk 7 partition 3").Answers(ids),
		Sent("ListVolumesOnDisk", Number(1, 7)).Asks("OnDisk 7 partition 0").Answers(ids),
		Sent("MountVolume", id, Text(2, path)).Asks("Mount " + VolumeID + " at " + path),
		Sent("UnmountVolume", id, Text(2, path)).Asks("Unmount " + VolumeID + " at " + path),
		Sent("IsVolumeFormatted", id).Asks("FileSystem " + VolumeID).Answers(Yes(1)),
		Sent("FormatVolume", id).Asks("Format " + VolumeID + ` ""`),
		Sent("ResizeVolume", id, Number(2, 1<<40)).Asks("Resize " + VolumeID + " 1099511627776"),
		Sent("ResizeVolume", id).Asks("Resize " + VolumeID + " 0"),
		Sent("GetVolumeStats", id).Asks("Stats " + VolumeID).Answers(stats),
		Sent("GetDiskNumberFromVolumeID", id).Asks("DiskOf " + VolumeID).Answers(Number(1, 4294967295)),
		Sent("GetVolumeIDFromTargetPath", Text(1, path)).Asks("At " + path).Answers(id),
	})
	Check(t, volumeVersions(), map[string][]Exchange{
		"v1alpha1": alpha1,
		"v1beta1":  beta1,
		"v1beta2":  slices.Concat(beta1, cache),
		"v1beta3":  beta3,
		"v1":       beta3,
		"v2alpha1": slices.Concat(beta3, []Exchange{
			Sent("GetClosestVolumeIDFromTargetPath", Text(1, path)).Asks("Closest " + path).Answers(id),
		}),
	})
}

// Drivers take the first ID without looking, so none is ever empty.
func TestListVolumesOnDisk_neverAnswersAnEmptyID(t *testing.T) {
	for _, definition := range volumeVersions() {
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		request := Message(Number(1, 7))
		if slices.Contains(server.Methods, "DismountVolume") {
			request = Text(1, "7")
		}
		machine.VolumeIDs = []string{"", VolumeID, ""}
		response, err := server.Call(t, "ListVolumesOnDisk", request)
		if err != nil || string(response) != string(Text(1, VolumeID)) {
			t.Errorf("%s answers %x, %v", Name(definition), response, err)
		}
		if want := []string{"", VolumeID, ""}; !slices.Equal(machine.VolumeIDs, want) {
			t.Errorf("%s changed the host's own list to %q", Name(definition), machine.VolumeIDs)
		}
		machine.VolumeIDs = []string{""}
		if response, err := server.Call(t, "ListVolumesOnDisk", request); err != nil || len(response) != 0 {
			t.Errorf("%s answers %x, %v for no volume", Name(definition), response, err)
		}
	}
}

func TestResizeVolume_refusesANegativeSize(t *testing.T) {
	for _, definition := range volumeVersions() {
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		for _, size := range []int64{-1, -1 << 63} {
			_, err := server.Call(t, "ResizeVolume", Message(Text(1, VolumeID), Number(2, size)))
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s, size %d: %v, want ErrInvalid", Name(definition), size, err)
			}
		}
		if calls := machine.Calls(); calls != nil {
			t.Errorf("%s: the host was asked %q", Name(definition), calls)
		}
	}
}

// The disk of v1beta2 and before is a text.
func TestVolumeDiskID_isRejectedUnlessItHas32Bits(t *testing.T) {
	for _, definition := range volumeVersions() {
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		if !slices.Contains(server.Methods, "DismountVolume") {
			continue
		}
		for _, id := range []string{"", "4294967303", "-1", "x"} {
			if _, err := server.Call(t, "ListVolumesOnDisk", Text(1, id)); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s, disk %q: %v, want ErrInvalid", Name(definition), id, err)
			}
		}
		if calls := machine.Calls(); calls != nil {
			t.Errorf("%s: the host was asked %q", Name(definition), calls)
		}
	}
}

func TestIsVolumeFormatted_isFalseForRawAndTrueForAnyFilesystem(t *testing.T) {
	for _, definition := range volumeVersions() {
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		for fileSystem, want := range map[string][]byte{"": nil, "NTFS": Yes(1), "ReFS": Yes(1), "FAT32": Yes(1)} {
			machine.FileSystem = fileSystem
			response, err := server.Call(t, "IsVolumeFormatted", Text(1, VolumeID))
			if err != nil || string(response) != string(want) {
				t.Errorf("%s, %q: %x, %v", Name(definition), fileSystem, response, err)
			}
		}
	}
}
