package host

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// unify sorts disks by number and merges the interfaces of one disk. Each number is
// listed once. A disk that could not be identified keeps its own entry, since a disk
// that is not listed counts as detached. If another disk has its number, the entry gets
// none: the number that it had when it last answered may be the other disk's now.
func unify(found []api.Disk) []api.Disk {
	byNumber := map[uint32][]api.Disk{}
	for _, disk := range found {
		byNumber[disk.Number] = merge(byNumber[disk.Number], disk)
	}
	var listed []api.Disk
	for number, disks := range byNumber {
		if len(disks) > 1 && number != api.UnknownNumber {
			disks = contest(number, disks)
		}
		listed = append(listed, disks...)
	}
	slices.SortFunc(listed, func(a, b api.Disk) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.SerialNumber, b.SerialNumber),
			cmp.Compare(a.Page83, b.Page83))
	})
	return listed
}

// merge adds a disk to those with its number, unless one of them is the same. Of two
// entries of one disk it keeps the one without a problem.
func merge(disks []api.Disk, disk api.Disk) []api.Disk {
	same := func(other api.Disk) bool {
		return !disk.IsUnidentified() && !other.IsUnidentified() && disk.Identity() == other.Identity() &&
			reflect.DeepEqual(disk.Location, other.Location)
	}
	i := slices.IndexFunc(disks, same)
	if i < 0 {
		return append(disks, disk)
	}
	if disks[i].Problem != nil {
		disks[i] = disk
	}
	return disks
}

// contest removes a number that several disks reported. If only one of them could be
// identified, that one keeps it. Otherwise numbers changed while they were read.
func contest(number uint32, disks []api.Disk) []api.Disk {
	identified := 0
	for _, disk := range disks {
		if !disk.IsUnidentified() {
			identified++
		}
	}
	for i, disk := range disks {
		if identified == 1 && !disk.IsUnidentified() {
			continue
		}
		disks[i].Number = api.UnknownNumber
		if disk.Problem == nil {
			disks[i].Problem = fmt.Errorf("%w: it answered number %d, and so did another disk; list the disks again",
				backend.ErrUnavailable, number)
		}
	}
	return disks
}
