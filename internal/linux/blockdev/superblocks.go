package blockdev

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
)

var (
	little = binary.LittleEndian
	big    = binary.BigEndian
)

// crc32c is the checksum of all three filesystems (RFC 3720, Castagnoli).
func crc32c(parts ...[]byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var sum uint32
	for _, part := range parts {
		sum = crc32.Update(sum, table, part)
	}
	return sum
}

// text is a fixed field that ends at its first zero byte.
func text(field []byte) string {
	value, _, _ := bytes.Cut(field, []byte{0})
	return string(value)
}

func uuid(field []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", field[0:4], field[4:6], field[6:8], field[8:10], field[10:16])
}

// bytesOf multiplies blocks by their size; false when it does not fit.
func bytesOf(blocks, blockSize uint64) (int64, bool) {
	high, low := bits.Mul64(blocks, blockSize)
	return int64(low), high == 0 && low <= 1<<63-1
}

// fit judges a sound superblock by the size it claims.
func (p *probe) fit(c Content, blocks, blockSize uint64) Content {
	size, ok := bytesOf(blocks, blockSize)
	switch {
	case !ok || size == 0:
		return corrupt(c, fmt.Sprintf("its superblock claims %d blocks of %d bytes", blocks, blockSize))
	case size > p.size:
		return corrupt(c, fmt.Sprintf("it has %d bytes and the device only %d: it was truncated", size, p.size))
	}
	c.Kind, c.Size = Filesystem, size
	return c
}

func corrupt(c Content, detail string) Content {
	c.Kind, c.Detail = Corrupt, detail
	return c
}

// Fields of the ext superblock (fs/ext4/ext4.h, struct ext4_super_block), which
// is 1024 bytes at offset 1024.
const (
	extMagic             = 0xef53
	extHasJournal        = 0x4   // feature_compat
	extRecover           = 0x4   // feature_incompat
	extJournalDevice     = 0x8   // feature_incompat
	ext64Bit             = 0x80  // feature_incompat
	extMetadataChecksums = 0x400 // feature_ro_compat
	ext3Incompat         = 0x2 | extRecover | 0x10
	ext3ROCompat         = 0x1 | 0x2 | 0x4
	extStateClean        = 0x1
	extStateErrors       = 0x2
)

func detectExt(p *probe) (Content, bool) {
	sb := p.at(1024, 1024)
	if sb == nil || little.Uint16(sb[0x38:]) != extMagic {
		return Content{}, false
	}
	compat, incompat, roCompat := little.Uint32(sb[0x5c:]), little.Uint32(sb[0x60:]), little.Uint32(sb[0x64:])
	c := Content{Type: extType(compat, incompat, roCompat), UUID: uuid(sb[0x68:0x78]), Label: text(sb[0x78:0x88])}
	if incompat&extJournalDevice != 0 {
		c.Kind, c.Type, c.Detail = Foreign, "jbd", "the journal of an ext filesystem on another device"
		return c, true
	}
	// The kernel's crc32c is not inverted at the end (ext4_superblock_csum).
	if roCompat&extMetadataChecksums != 0 && ^crc32c(sb[:0x3fc]) != little.Uint32(sb[0x3fc:]) {
		return corrupt(c, "the checksum of its superblock is wrong"), true
	}
	logBlockSize := little.Uint32(sb[0x18:])
	if logBlockSize > 6 || little.Uint32(sb[0x20:]) == 0 || little.Uint32(sb[0x28:]) == 0 {
		return corrupt(c, "its superblock makes no sense"), true
	}
	blocks := uint64(little.Uint32(sb[4:]))
	if incompat&ext64Bit != 0 {
		blocks |= uint64(little.Uint32(sb[0x150:])) << 32
	}
	c = p.fit(c, blocks, 1024<<logBlockSize)
	state := little.Uint16(sb[0x3a:])
	c.HasErrors = state&extStateErrors != 0
	// With a journal, the kernel replays an unclean end at mount.
	c.NeedsCheck = state&extStateClean == 0 && compat&extHasJournal == 0
	return c, true
}

func extType(compat, incompat, roCompat uint32) string {
	switch {
	case incompat&^ext3Incompat != 0 || roCompat&^ext3ROCompat != 0:
		return "ext4"
	case compat&extHasJournal != 0:
		return "ext3"
	}
	return "ext2"
}

// Fields of the xfs superblock (fs/xfs/libxfs/xfs_format.h, struct xfs_dsb),
// big endian, at offset 0.
const (
	xfsNeedsRepair = 1 << 4 // features_incompat
	xfsCRCOffset   = 224
)

func detectXFS(p *probe) (Content, bool) {
	sb := p.at(0, 512)
	if sb == nil || string(sb[:4]) != "XFSB" {
		return Content{}, false
	}
	c := Content{Type: "xfs", UUID: uuid(sb[32:48]), Label: text(sb[108:120])}
	blockSize, sectorSize := big.Uint32(sb[4:]), int(big.Uint16(sb[102:]))
	if bits.OnesCount32(blockSize) != 1 || blockSize < 512 || blockSize > 64*kibi || sectorSize < 512 ||
		sectorSize > 32*kibi {
		return corrupt(c, "its superblock makes no sense"), true
	}
	if sb[126] != 0 {
		return corrupt(c, "its mkfs did not end"), true // sb_inprogress
	}
	if big.Uint16(sb[100:])&0xf == 5 {
		sector := p.at(0, sectorSize)
		if sector == nil || crc32c(sector[:xfsCRCOffset], make([]byte, 4), sector[xfsCRCOffset+4:]) != little.Uint32(sector[xfsCRCOffset:]) {
			return corrupt(c, "the checksum of its superblock is wrong"), true
		}
		c.HasErrors = big.Uint32(sb[216:])&xfsNeedsRepair != 0
	}
	return p.fit(c, big.Uint64(sb[8:]), uint64(blockSize)), true
}

// Fields of the btrfs superblock (linux/btrfs_tree.h, struct
// btrfs_super_block), at 64 KiB with copies at 64 MiB and 256 GiB.
const (
	btrfsSuperOffset = 64 * kibi
	btrfsSuperSize   = 4096
	btrfsFlagError   = 1 << 2
	btrfsCRC32C      = 0
	btrfsSHA256      = 2
)

var btrfsMirrors = []int64{64 * mebi, 256 * gibi}

func isBtrfs(sb []byte) bool { return string(sb[64:72]) == "_BHRfS_M" }

func detectBtrfs(p *probe) (Content, bool) {
	sb := p.at(btrfsSuperOffset, btrfsSuperSize)
	if sb == nil || !isBtrfs(sb) {
		return Content{}, false
	}
	c := Content{Type: "btrfs", UUID: uuid(sb[32:48]), Label: text(sb[299 : 299+256])}
	switch {
	case !btrfsChecksumFits(sb):
		return corrupt(c, "the checksum of its superblock is wrong"), true
	case little.Uint64(sb[48:]) != btrfsSuperOffset:
		return corrupt(c, "its superblock was written for another offset"), true
	case little.Uint64(sb[136:]) != 1:
		c.Kind, c.Detail = Foreign, fmt.Sprintf("one of %d devices of a btrfs", little.Uint64(sb[136:]))
		return c, true
	}
	c.HasErrors = little.Uint64(sb[56:])&btrfsFlagError != 0
	return p.fit(c, little.Uint64(sb[209:]), 1), true // dev_item.total_bytes
}

// detectBtrfsMirror finds a btrfs whose first superblock is gone.
func detectBtrfsMirror(p *probe) (Content, bool) {
	for _, offset := range btrfsMirrors {
		if sb := p.at(offset, btrfsSuperSize); sb != nil && isBtrfs(sb) && btrfsChecksumFits(sb) &&
			int64(little.Uint64(sb[48:])) == offset {
			return corrupt(Content{Type: "btrfs"}, fmt.Sprintf("its superblock is gone; a copy is at offset %d", offset)), true
		}
	}
	return Content{}, false
}

// btrfsChecksumFits verifies the two checksums of the standard library; the
// kernel verifies the others (xxhash, blake2b) when it mounts.
func btrfsChecksumFits(sb []byte) bool {
	switch little.Uint16(sb[196:]) {
	case btrfsCRC32C:
		return crc32c(sb[32:]) == little.Uint32(sb)
	case btrfsSHA256:
		sum := sha256.Sum256(sb[32:])
		return bytes.Equal(sum[:], sb[:32])
	}
	return true
}
