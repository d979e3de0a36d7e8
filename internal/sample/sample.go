// Package sample lists where data is searched on a disk that cannot be read
// whole, before it is formatted: the offsets of backup superblocks, and pages in
// even distances.
package sample

import "slices"

const (
	kibi = int64(1) << 10
	mebi = int64(1) << 20
	gibi = int64(1) << 30
)

// Page is how many bytes are read at each offset.
const Page = 4 * kibi

const (
	// sampleCount is how many pages are sampled evenly, where the limits of their
	// spacing allow: a gp3 volume with 3,000 reads a second takes 0.3 s for them. Of
	// test/corpus, 16 times as many find a tenth of what these miss, in 5 s.
	sampleCount = 1024
	// leastSpacing is the alignment of partitions. largestSpacing bounds the data
	// that a sample of a large disk can miss.
	leastSpacing   = mebi
	largestSpacing = gibi
	// smallestGroup is that of an ext filesystem with blocks of 1 KiB: a bitmap of
	// one block counts the blocks of a group, 8 × 1024 of 1 KiB each.
	smallestGroup = 8 * mebi
	// mostAGs is how many allocation groups of an xfs are considered. mkfs.xfs
	// makes 4 of up to 1 TiB, or one per CPU.
	mostAGs = 64
)

// Offsets are the offsets in bytes, ascending and multiples of 512, at which pages of a
// device of size bytes are read if its head and tail are blank.
func Offsets(size int64) []int64 {
	var found []int64
	for offset := spacing(size); offset < size; offset += spacing(size) {
		found = append(found, offset)
	}
	found = append(found, extBackups(size)...)
	found = append(found, xfsGroups(size)...)
	// NTFS keeps a copy of its first file records, and once kept its boot
	// sector, in the middle.
	middle := size / 2 &^ (Page - 1)
	found = append(found, middle, middle-Page)
	slices.Sort(found)
	found = slices.Compact(found)
	return slices.DeleteFunc(found, func(offset int64) bool { return offset < 0 || offset+Page > size })
}

// spacing is the distance of the pages that are sampled evenly: data of that length
// and a page contains at least one of them.
func spacing(size int64) int64 {
	even := (size/sampleCount + Page - 1) &^ (Page - 1)
	return min(max(leastSpacing, even), largestSpacing)
}

// extBackups are the starts of the block groups that have a copy of the
// superblock: 1, the powers of 3, 5 and 7 (sparse_super), and the last
// (sparse_super2). The size of a group is a power of two for every size of
// blocks, and of clusters (bigalloc), up to 4 KiB; for larger ones the number of
// blocks is 16 bits (EXT2_MAX_BLOCKS_PER_GROUP of e2fsprogs). Only mke2fs -g makes
// others. With blocks of 1 KiB the copy is 1 KiB into the group, in the same page.
func extBackups(size int64) []int64 {
	var groupSizes []int64
	for group := smallestGroup; group < size; group *= 2 {
		groupSizes = append(groupSizes, group)
	}
	for block := 8 * kibi; block <= 64*kibi; block *= 2 {
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
