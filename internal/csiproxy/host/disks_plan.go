package host

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	// alignment of partitions, as Windows has it since Vista.
	alignment = mebi
	// reservedLength is the Microsoft Reserved Partition's on a data disk.
	reservedLength = 16 * mebi
	// leastData is the smallest data partition that is made.
	leastData = 8 * mebi
	// maxPartitions is the number of entries in a GPT that Windows makes.
	maxPartitions = 128
)

// usedPartitions are the entries of a layout that are not empty, by offset. The layout
// of an MBR has at least four entries; that of a GPT may have empty ones too.
func usedPartitions(layout win32.DriveLayout) []win32.Partition {
	var used []win32.Partition
	for _, p := range layout.Partitions {
		empty := p.Length <= 0 || layout.Style == win32.StyleMBR && p.MBRType == 0 || layout.Style == win32.StyleGPT &&
			p.Type == win32.GUID{}
		if !empty {
			used = append(used, p)
		}
	}
	slices.SortStableFunc(used, func(a, b win32.Partition) int { return cmp.Compare(a.Offset, b.Offset) })
	return used
}

// holdsData reports whether a partition may have data: all kinds but Microsoft's
// reserved partition may.
func holdsData(p win32.Partition) bool {
	return p.Style != win32.StyleGPT || p.Type != win32.PartitionReserved
}

// Types of MBR partitions that Windows has a volume for (winioctl.h,
// PARTITION_FAT_12 … PARTITION_XINT13).
var mbrVolumes = []uint8{0x01, 0x04, 0x06, 0x07, 0x0B, 0x0C, 0x0E}

// hasVolume reports whether Windows makes a volume of a partition in any case.
func hasVolume(p win32.Partition) bool {
	if p.Style == win32.StyleGPT {
		return p.Type == win32.PartitionBasicData
	}
	return slices.Contains(mbrVolumes, p.MBRType)
}

// diskUse is the use of a disk, by its partition table.
type diskUse int

const (
	// unpartitioned: it has no table. Only its blocks show whether it is blank.
	unpartitioned diskUse = iota
	// initialised: it has a GPT without a partition that could hold data, as after an
	// interrupted Partition.
	initialised
	// partitioned: it is in use, and stays as it is.
	partitioned
	// unusable: it has a table to which this package adds nothing.
	unusable
)

func useOf(layout win32.DriveLayout) diskUse {
	switch {
	case layout.Style == win32.StyleRaw:
		return unpartitioned
	case slices.ContainsFunc(usedPartitions(layout), holdsData):
		return partitioned
	case layout.Style == win32.StyleGPT:
		return initialised
	}
	return unusable
}

func alignUp(n int64) int64   { return (n + alignment - 1) / alignment * alignment }
func alignDown(n int64) int64 { return n / alignment * alignment }

// largestGap is the largest aligned stretch of a GPT's usable space that no
// partition has.
func largestGap(layout win32.DriveLayout) stretch {
	var best stretch
	consider := func(from, to int64) {
		if from, to = alignUp(from), alignDown(to); to-from > best.length {
			best = stretch{from, to - from}
		}
	}
	free := layout.UsableOffset
	for _, p := range usedPartitions(layout) {
		consider(free, p.Offset)
		free = max(free, p.Offset+p.Length)
	}
	consider(free, layout.UsableOffset+layout.UsableLength)
	return best
}

// planPartitions adds the missing partitions to an initialised GPT: the reserved one,
// and one of basic data that has all other space and gets no drive letter. It returns
// the new layout and the data partition.
func planPartitions(layout win32.DriveLayout, newID func() win32.GUID) (win32.DriveLayout, win32.Partition, error) {
	planned := layout
	planned.Partitions = usedPartitions(layout)
	add := func(kind win32.GUID, attributes uint64, name string, at stretch) win32.Partition {
		number := uint32(1)
		for _, p := range planned.Partitions {
			number = max(number, p.Number+1)
		}
		p := win32.Partition{
			Style: win32.StyleGPT, Offset: at.offset, Length: at.length, Number: number, Rewrite: true,
			Type: kind, ID: newID(), Attributes: attributes, Name: name,
		}
		planned.Partitions = append(planned.Partitions, p)
		return p
	}
	gap := largestGap(planned)
	if len(planned.Partitions) == 0 && gap.length >= reservedLength+leastData {
		add(win32.PartitionReserved, 0, "Microsoft reserved partition", stretch{gap.offset, reservedLength})
		gap = largestGap(planned)
	}
	if gap.length < leastData {
		return win32.DriveLayout{}, win32.Partition{}, fmt.Errorf("%w: the disk has %d bytes free in one piece, and a data partition needs %d",
			backend.ErrPrecondition, gap.length, leastData+reservedLength)
	}
	data := add(win32.PartitionBasicData, win32.GPTNoDriveLetter, "Basic data partition", gap)
	return planned, data, nil
}

// sameEntries compares a layout that was written with the one that is read.
func sameEntries(written, read win32.DriveLayout) error {
	if read.Style != written.Style || read.DiskID != written.DiskID {
		return fmt.Errorf("the table is %v of disk %v; written was %v of %v", read.Style, read.DiskID,
			written.Style, written.DiskID)
	}
	for _, want := range written.Partitions {
		i := slices.IndexFunc(read.Partitions, func(p win32.Partition) bool { return p.ID == want.ID })
		if i < 0 {
			return fmt.Errorf("partition %v is not in it", want.ID)
		}
		if got := read.Partitions[i]; got.Type != want.Type || got.Offset != want.Offset || got.Length != want.Length {
			return fmt.Errorf("partition %v is of type %v, %d bytes from %d; written was %v, %d from %d",
				want.ID, got.Type, got.Length, got.Offset, want.Type, want.Length, want.Offset)
		}
	}
	return nil
}
