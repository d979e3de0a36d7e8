package groups

import (
	"slices"
	"testing"

	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
)

// Directly attached disks, in all versions.
func TestDiskVersions_areThoseOfTheWire(t *testing.T) {
	location := Sub(2, Text(1, "1"), Text(2, "2"), Text(3, "3"), Text(4, "4"))
	page83 := Entry(1, Text(1, "page83"), Text(2, "600508e0"))
	serial := Entry(1, Text(1, "serialNumber"), Text(2, "vol0123"))

	all := []Exchange{
		Sent("ListDiskLocations").Asks("List").Answers(Entry(1, Text(1, "7"), location)),
		Sent("PartitionDisk", Text(1, "7")).Asks("Partition 7"),
		Sent("Rescan").Asks("Rescan"),
	}
	beta1 := slices.Concat(all, []Exchange{
		Sent("ListDiskIDs").Asks("List").Answers(
			Entry(1, Text(1, "7"), Sub(2, page83, serial)),
			Entry(1, Text(1, "7"), Sub(2, serial, page83))),
		Sent("DiskStats", Text(1, "4294967295")).Asks("Size 4294967295").Answers(Number(1, 64<<30)),
	})
	beta3 := []Exchange{
		Sent("ListDiskLocations").Asks("List").Answers(Entry(1, Number(1, 7), location)),
		Sent("PartitionDisk", Number(1, 4294967295)).Asks("Partition 4294967295"),
		Sent("Rescan").Asks("Rescan"),
		Sent("ListDiskIDs").Asks("List").Answers(Entry(1, Number(1, 7), Sub(2, Text(1, "600508e0"), Text(2, "vol0123")))),
		Sent("GetDiskStats", Number(1, 7)).Asks("Size 7").Answers(Number(1, 64<<30)),
		Sent("SetDiskState", Number(1, 7), Yes(2)).Asks("SetOnline 7 true"),
		Sent("SetDiskState", Number(1, 7)).Asks("SetOnline 7 false"),
		Sent("GetDiskState", Number(1, 7)).Asks("Online 7").Answers(Yes(1)),
	}
	Check(t, diskVersions(), map[string][]Exchange{
		"v1alpha1": slices.Concat(all, []Exchange{
			Sent("GetDiskNumberByName", Text(1, "600508e0")).Asks("List").Answers(Text(1, "7")),
		}),
		"v1beta1": beta1,
		"v1beta2": slices.Concat(beta1, []Exchange{
			Sent("SetAttachState", Text(1, "7"), Yes(2)).Asks("SetOnline 7 true"),
			Sent("SetAttachState", Text(1, "7")).Asks("SetOnline 7 false"),
			Sent("GetAttachState", Text(1, "7")).Asks("Online 7").Answers(Yes(1)),
		}),
		"v1beta3": beta3,
		"v1":      beta3,
	})
}
