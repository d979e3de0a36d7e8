package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/sample"
)

const (
	kibi = int64(1) << 10
	mebi = int64(1) << 20
	gibi = int64(1) << 30
)

// stretch is a run of bytes of a disk or volume.
type stretch struct{ offset, length int64 }

// The ranges of a disk that can contain a signature. Nearly all are in its head and
// its tail (superblocks, partition tables, boot sectors and their copies, members of
// Storage Spaces, LDM and RAID, and a partition that begins at the first mebibyte
// of a disk whose table is gone).
const (
	headLength = mebi + 64*kibi
	tailLength = mebi
	spotLength = 4 * kibi
)

// spots are the offsets of signatures elsewhere: a second LUKS2 header, VMFS, the
// copies of btrfs' superblock, and the first data partition that Windows makes
// behind reserved partitions of several sizes.
var spots = []int64{2 * mebi, 4 * mebi, 16 * mebi, 17 * mebi, 64 * mebi, 128 * mebi, 129 * mebi, 145 * mebi, 256 * gibi}

// signatureRanges are the ranges to read, in this order, before size bytes can be
// called blank.
func signatureRanges(size int64) []stretch {
	head := min(headLength, size)
	ranges := []stretch{{0, head}}
	tail := max(head, size-tailLength)
	for _, spot := range spots {
		if spot >= head && spot+spotLength <= tail {
			ranges = append(ranges, stretch{spot, spotLength})
		}
	}
	if tail < size {
		ranges = append(ranges, stretch{tail, size - tail})
	}
	return ranges
}

// spotsWithin are the spots of a disk that lie in a part of it. The spots of the part
// itself are others, counted from where the part begins.
func spotsWithin(part stretch) []stretch {
	var within []stretch
	for _, spot := range spots {
		if spot >= part.offset && spot+spotLength <= part.offset+part.length {
			within = append(within, stretch{spot, spotLength})
		}
	}
	return within
}

// content is the data that was read of a disk or volume.
type content struct {
	size  int64
	parts []part
}

type part struct {
	offset int64
	data   []byte
}

// readContent reads the ranges of a stretch of a device that can contain a
// signature, in whole sectors, and a sample of the rest if they are blank. A range
// that cannot be read is an error and never counts as blank.
func readContent(ctx context.Context, r io.ReaderAt, within stretch, sector int64) (content, error) {
	c := content{size: within.length}
	if sector <= 0 || within.length < sector || within.offset%sector != 0 {
		return c, fmt.Errorf("%w: %d bytes from %d in sectors of %d cannot be read",
			backend.ErrPrecondition, within.length, within.offset, sector)
	}
	for _, wanted := range signatureRanges(within.length) {
		found, err := readPart(ctx, r, within, wanted, sector)
		if err != nil {
			return c, err
		}
		c.parts = append(c.parts, found)
	}
	if _, used := c.used(); used {
		return c, nil
	}
	for _, offset := range sample.Offsets(within.length) {
		found, err := readPart(ctx, r, within, stretch{offset, sample.Page}, sector)
		if err != nil {
			return c, err
		}
		if _, used := firstUsed(found.data); used {
			c.parts = append(c.parts, found)
		}
		if len(c.parts) >= mostParts {
			break
		}
	}
	return c, nil
}

// mostParts bounds the parts in memory of a disk that is full of data.
const mostParts = 256

// readPart reads a range of a stretch, with the whole of its first and last sector.
func readPart(ctx context.Context, r io.ReaderAt, within, wanted stretch, sector int64) (part, error) {
	if ctx.Err() != nil {
		return part{}, context.Cause(ctx)
	}
	first := wanted.offset / sector * sector
	last := min((wanted.offset+wanted.length+sector-1)/sector*sector, within.length/sector*sector)
	data := make([]byte, last-first)
	if n, err := r.ReadAt(data, within.offset+first); n < len(data) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return part{}, failed(err, "read %d bytes from %d to check that they are blank", len(data), within.offset+first)
	}
	return part{first, data}, nil
}

// used is the offset of the first byte that is not zero.
func (c content) used() (int64, bool) {
	for _, p := range c.parts {
		if at, used := firstUsed(p.data); used {
			return p.offset + int64(at), true
		}
	}
	return 0, false
}

// firstUsed is the index of the first byte that is not zero.
func firstUsed(data []byte) (int, bool) {
	var zeros [4 * kibi]byte
	for at := 0; at < len(data); at += len(zeros) {
		chunk := data[at:min(at+len(zeros), len(data))]
		if !bytes.Equal(chunk, zeros[:len(chunk)]) {
			return at + bytes.IndexFunc(chunk, func(r rune) bool { return r != 0 }), true
		}
	}
	return 0, false
}

// at returns length bytes from an offset, which counts from the end if it is negative;
// nil if these bytes were not read.
func (c content) at(offset, length int64) []byte {
	if offset < 0 {
		offset += c.size
	}
	for _, p := range c.parts {
		if offset >= p.offset && offset+length <= p.offset+int64(len(p.data)) {
			return p.data[offset-p.offset : offset-p.offset+length]
		}
	}
	return nil
}

// signature identifies the kind of data at an offset.
type signature struct {
	name   string
	offset int64
	magic  string
}

// foreign are signatures that no format by this proxy writes. They serve to name the
// content in an error: a disk with any byte but zero is not blank, whether its content
// is known or not.
var foreign = []signature{
	{"BitLocker", 3, "-FVE-FS-"}, {"ReFS", 3, "ReFS\x00\x00\x00\x00"}, {"exFAT", 3, "EXFAT   "},
	{"FAT32", 82, "FAT32   "}, {"FAT", 54, "FAT1"},
	{"ext2, ext3 or ext4", 1080, "\x53\xef"}, {"XFS", 0, "XFSB"}, {"btrfs", 64*kibi + 64, "_BHRfS_M"},
	{"LUKS", 0, "LUKS\xba\xbe"}, {"LVM", 512, "LABELONE"}, {"Linux swap", 4086, "SWAPSPACE2"}, {"Linux swap", 4086, "SWAP-SPACE"},
	{"ISO 9660", 32769, "CD001"}, {"a GPT", 512, "EFI PART"}, {"a GPT", 4096, "EFI PART"},
	{"the copy of a GPT", -512, "EFI PART"}, {"the copy of a GPT", -4096, "EFI PART"},
	{"Storage Spaces", 4096, "SPACEDB "}, {"a dynamic disk", 3072, "PRIVHEAD"}, {"bluestore", 0, "bluestore block device"},
}

// ntfs are signatures of NTFS, complete or begun.
var ntfs = []signature{
	{"NTFS", 3, "NTFS    "}, {"NTFS", -509, "NTFS    "}, {"NTFS", -4093, "NTFS    "},
	{"NTFS", mebi + 3, "NTFS    "},
}

func (c content) find(signatures []signature) (string, bool) {
	for _, s := range signatures {
		if bytes.Equal(c.at(s.offset, int64(len(s.magic))), []byte(s.magic)) {
			return s.name, true
		}
	}
	return "", false
}

// String names the content.
func (c content) String() string {
	offset, used := c.used()
	if !used {
		return "nothing"
	}
	if name, found := c.find(append(ntfs[:len(ntfs):len(ntfs)], foreign...)); found {
		return name
	}
	if bytes.Equal(c.at(510, 2), []byte("\x55\xaa")) {
		return "a boot sector or an MBR"
	}
	return fmt.Sprintf("data of unknown kind from byte %d", offset)
}

// ntfsRecords are the first bytes of NTFS' own files, at multiples of a sector.
var ntfsRecords = []string{"FILE", "RCRD", "RSTR", "INDX"}

// isHalfMadeNTFS reports whether the content can only be that of an interrupted format
// of NTFS: it has something of NTFS, and nothing of another kind.
func (c content) isHalfMadeNTFS() bool {
	if _, found := c.find(foreign); found {
		return false
	}
	if _, found := c.find(ntfs); found {
		return true
	}
	for _, p := range c.parts {
		for at := 0; at+4 <= len(p.data); at += 512 {
			for _, magic := range ntfsRecords {
				if string(p.data[at:at+4]) == magic {
					return true
				}
			}
		}
	}
	return false
}
