package groups

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	diskv1 "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1"
	diskv1beta2 "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1beta2"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
)

func someDisks() []api.Disk {
	return []api.Disk{
		{Number: 0, Page83: "aa", SerialNumber: "S0"}, // no SCSI address
		{Number: 1, Location: &api.DiskLocation{Adapter: "0", Bus: "0", Target: "1", LUN: "0"}, Problem: errors.New("away")},
		{Number: 2, Location: &api.DiskLocation{}},
		{Number: 4294967295, Page83: "bb", SerialNumber: "S9"},
	}
}

// One disk that cannot be read hides no other.
func TestDiskIDs_leaveOutDisksWithAProblem(t *testing.T) {
	numbers := slices.Sorted(maps.Keys(idsByNumber(someDisks())))
	if want := []uint32{0, 2, 4294967295}; !slices.Equal(numbers, want) {
		t.Errorf("disks %d, want %d", numbers, want)
	}
	texts := idsByText(someDisks())
	if want := []string{"0", "2", "4294967295"}; !slices.Equal(slices.Sorted(maps.Keys(texts)), want) {
		t.Errorf("disks %q, want %q", slices.Sorted(maps.Keys(texts)), want)
	}
	if got := texts["4294967295"].GetIdentifiers(); !maps.Equal(got, map[string]string{"page83": "bb", "serialNumber": "S9"}) {
		t.Errorf("identifiers %q", got)
	}
}

func TestDiskLocations_leaveOutDisksWithoutOne(t *testing.T) {
	locations := locationsByNumber(someDisks())
	if numbers := slices.Sorted(maps.Keys(locations)); !slices.Equal(numbers, []uint32{1, 2}) {
		t.Errorf("disks %d, want 1 and 2", numbers)
	}
}

func TestNumberByName(t *testing.T) {
	disks := append(someDisks(),
		api.Disk{Number: 5, Page83: "twin"}, api.Disk{Number: 6, Page83: "twin"},
		api.Disk{Number: 8, Page83: "sick", Problem: errors.New("away")})
	for _, row := range []struct {
		name string
		want uint32
		err  error
	}{
		{"bb", 4294967295, nil},
		{"aa", 0, nil},
		{"cc", 0, backend.ErrNotFound},
		{"S0", 0, backend.ErrNotFound}, // a serial number is not a name
		{"sick", 0, backend.ErrNotFound},
		{"twin", 0, backend.ErrPrecondition},
	} {
		got, err := numberOf(disks, row.name)
		if got != row.want || !errors.Is(err, row.err) {
			t.Errorf("%q is disk %d, %v; want %d, %v", row.name, got, err, row.want, row.err)
		}
	}
}

// Numbers of disks are not truncated to 32 bits, in any call that has one as text.
func TestDiskID_isRejectedUnlessItHas32Bits(t *testing.T) {
	for _, definition := range diskVersions() {
		if definition.Version == "v1" || definition.Version == "v1beta3" {
			continue
		}
		machine := groupstest.Answering()
		server := groupstest.Serve(t, definition, machine.Host())
		for _, method := range []string{"PartitionDisk", "DiskStats", "SetAttachState", "GetAttachState"} {
			if !slices.Contains(server.Methods, method) {
				continue
			}
			for _, id := range []string{"", "4294967296", "4294967303", "-1", "x", "0x1", "1.0", " 1", "\\\\.\\PhysicalDrive1"} {
				_, err := server.Call(t, method, groupstest.Text(1, id))
				if !errors.Is(err, backend.ErrInvalid) {
					t.Errorf("%s %s of disk %q: %v, want ErrInvalid", groupstest.Name(definition), method, id, err)
				}
			}
		}
		if calls := machine.Calls(); calls != nil {
			t.Errorf("%s: the host was asked %q", groupstest.Name(definition), calls)
		}
	}
}

// For any identity of a disk, the answer can be sent, and both
// forms of it say the same.
func FuzzDiskIDs(f *testing.F) {
	f.Add(uint32(0), "600508e000000000", "vol0123")
	f.Add(uint32(4294967295), "", "")
	f.Add(uint32(1), "\x00\xff", "\xc3 latin-1 and  blanks ")
	f.Fuzz(func(t *testing.T, number uint32, page83, serial string) {
		disks := []api.Disk{{Number: number, Page83: page83, SerialNumber: serial}}
		byNumber, byText := idsByNumber(disks), idsByText(disks)
		for _, message := range []proto.Message{
			&diskv1.ListDiskIDsResponse{DiskIDs: byNumber},
			&diskv1beta2.ListDiskIDsResponse{DiskIDs: byText},
		} {
			if _, err := proto.Marshal(message); err != nil {
				t.Errorf("%q, %q: %v", page83, serial, err)
			}
		}
		of := byText[diskText(number)].GetIdentifiers()
		if ids := byNumber[number]; ids.GetPage83() != of[page83Key] || ids.GetSerialNumber() != of[serialNumberKey] {
			t.Errorf("disk %d is %v by number, %v by text", number, ids, of)
		}
		if utf8.ValidString(page83) && of[page83Key] != page83 {
			t.Errorf("%q became %q", page83, of[page83Key])
		}
	})
}
