package blockdev

import (
	"fmt"
	"slices"
)

const (
	// page is read at each place.
	page = 4 * kibi
	// smallestGroup is that of an ext filesystem with blocks of 1 KiB: a bitmap of
	// one block counts the blocks of a group, 8 × 1024 of 1 KiB each.
	smallestGroup = 8 * mebi
	// mostAGs is how many allocation groups of an xfs are considered. mkfs.xfs
	// makes 4 of up to 1 TiB, or one per CPU.
	mostAGs = 64
)

// places are the offsets of a device of size bytes at which pages are read when
// nothing was found at its head and tail, in ascending order: those of backup
// superblocks, and one of every GiB.
func places(size int64) []int64 {
	var found []int64
	for offset := int64(gibi); offset < size; offset += gibi {
		found = append(found, offset)
	}
	found = append(found, extBackups(size)...)
	found = append(found, xfsGroups(size)...)
	// NTFS keeps a copy of its first file records, and once kept its boot
	// sector, in the middle.
	middle := size / 2 &^ (page - 1)
	found = append(found, middle, middle-page)
	slices.Sort(found)
	found = slices.Compact(found)
	return slices.DeleteFunc(found, func(offset int64) bool { return offset < 0 || offset+page > size })
}

// extBackups are the starts of the block groups that have a copy of the
// superblock: 1, the powers of 3, 5 and 7 (sparse_super), and the last
// (sparse_super2). The size of a group is a power of two for every size of
// blocks, and of clusters (bigalloc), up to 4 KiB; for larger ones the number of
// blocks is 16 bits (EXT2_MAX_BLOCKS_PER_GROUP of e2fsprogs). Only mke2fs -g makes
// others. With blocks of 1 KiB the copy is 1 KiB into the group, in the same page.
func extBackups(size int64) []int64 {
	var groupSizes []int64
	for group := int64(smallestGroup); group < size; group *= 2 {
		groupSizes = append(groupSizes, group)
	}
	for block := int64(8 * kibi); block <= 64*kibi; block *= 2 {
		groupSizes = append(groupSizes, (1<<16-8)*block)
	}
	var found []int64
	for _, group := range groupSizes {
		groups := (size + group - 1) / group
		found = append(found, group, (groups-1)*group)
		for _, base := range []int64{3, 5, 7} {
			for n := base; n < groups; n *= base {
				found = append(found, n*group)
			}
		}
	}
	return found
}

// xfsGroups are the starts of the second allocation group, which has a copy of
// the superblock as all have, for each number of groups and the sizes of blocks
// that are in use.
func xfsGroups(size int64) []int64 {
	var found []int64
	for _, block := range []int64{kibi, 4 * kibi, 64 * kibi} {
		blocks := size / block
		for n := int64(2); n <= mostAGs; n++ {
			found = append(found, (blocks+n-1)/n*block)
		}
	}
	return found
}

// identify names what a page that is not blank belongs to. The head of the
// device is blank, so a copy of a superblock means that the first is gone.
func identify(data []byte, offset int64) Content {
	gone := func(fsType string) Content {
		return corrupt(Content{Type: fsType}, fmt.Sprintf("its superblock is gone; a copy is at offset %d", offset))
	}
	// The page may begin before the group does.
	for sb := data; len(sb) >= 1024; sb = sb[512:] {
		switch {
		case string(sb[:4]) == "XFSB":
			return gone("xfs")
		case little.Uint16(sb[0x38:]) == extMagic && little.Uint32(sb[0x18:]) <= 6:
			return gone(extType(little.Uint32(sb[0x5c:]), little.Uint32(sb[0x60:]), little.Uint32(sb[0x64:])))
		}
	}
	return unrecognized(offset + int64(firstNonzero(data)))
}
