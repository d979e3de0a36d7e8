package blockdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Kind is the kind of a device's content, which decides whether it may be formatted.
type Kind int

// The kinds of content. Blank is the only one that may be formatted.
const (
	// Unrecognized: data, but nothing known. It may be anything.
	Unrecognized Kind = iota
	// Blank: all that was ever written to the device was read and is zero, or,
	// where that is not known, the offsets where signatures are and an even sample
	// of the rest.
	Blank
	// Filesystem: ext2, ext3, ext4, xfs or btrfs with a superblock in order.
	Filesystem
	// Foreign: something known that is not mounted as a volume: a partition
	// table, an encrypted device, a member of a RAID, another filesystem.
	Foreign
	// Corrupt: a known filesystem whose superblock is damaged or does not fit the
	// device.
	Corrupt
)

func (k Kind) String() string {
	names := []string{"unrecognized data", "blank", "filesystem", "foreign data", "damaged filesystem"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Content is the content found on a device.
type Content struct {
	Kind Kind
	// Type is the name blkid(8) has for it: ext4, xfs, LVM2_member, gpt, …
	Type, UUID, Label string
	// Size is that of a Filesystem, in bytes; a device may be larger.
	Size int64
	// NeedsCheck: the filesystem was not closed properly and has no journal.
	NeedsCheck bool
	// HasErrors: the filesystem itself recorded that it is damaged.
	HasErrors bool
	// Detail is a half-sentence for people.
	Detail string
}

const (
	kibi = 1 << 10
	mebi = 1 << 20
	gibi = 1 << 30
)

// The offsets where a signature could be: the head, the tail, and the spots.
const (
	// nearHead and nearTail contain every signature that decides about a device
	// with a sound filesystem: RAID members keep theirs at most 128 KiB from the
	// end (md 0.90), behind a filesystem that seems mountable.
	nearHead = 128 * kibi
	nearTail = 192 * kibi
	// farHead covers the many formats that begin somewhere in the first
	// mebibyte and a little more, farTail the two ZFS labels at the end with
	// their alignment (768 KiB).
	farHead = mebi + 64*kibi
	farTail = mebi
)

// spot is a lone offset beyond the head.
type spot struct {
	offset, length int64
}

// spots are the last offsets of a second LUKS2 header, of VMFS, and those of the
// copies of a btrfs superblock.
var spots = []spot{
	{2 * mebi, 4 * kibi}, {4 * mebi, 4 * kibi},
	{btrfsMirrors[0], btrfsSuperSize}, {btrfsMirrors[1], btrfsSuperSize},
}

// Written calls visit for each range of a device, in bytes and ascending, that
// may contain other bytes than zeros. backend.ErrUnsupported if that is not known.
type Written func(visit func(offset, length int64) error) error

// Probe returns the content of a device of size bytes. An error of r or of written,
// at any offset, is an error of Probe, so that an unreadable device is never
// taken for a blank one.
//
// With written, Blank is proven: all of the ranges were read. The head and the tail are
// read in any case; the other offsets of signatures are read only to name data that was
// found. Without (nil), these offsets were read, those of backup superblocks, and some
// 1,024 pages in even distances of at least 1 MiB and at most 1 GiB.
func Probe(ctx context.Context, r io.ReaderAt, size int64, written Written) (Content, error) {
	p := &probe{ctx: ctx, r: r, size: size}
	if err := p.load(nearHead, nearTail); err != nil {
		return Content{}, err
	}
	if content, found := p.recognize(); found {
		return content, nil
	}
	content, known := p.blankOrNot(), false
	if content.Kind == Blank {
		var err error
		content, known, err = p.searchWritten(written)
		if err != nil || (known && content.Kind == Blank) {
			return content, err
		}
	}
	if err := errors.Join(p.load(farHead, farTail), p.loadSpots()); err != nil {
		return Content{}, err
	}
	if content, found := p.recognize(); found {
		return content, nil
	}
	if far := p.blankOrNot(); far.Kind != Blank {
		return far, nil
	}
	if known {
		return content, nil
	}
	return p.searchSample()
}

// probe has the parts of the device that were read.
type probe struct {
	ctx   context.Context
	r     io.ReaderAt
	size  int64
	head  []byte // from 0
	tail  []byte // up to size
	spots map[int64][]byte
}

func (p *probe) loadSpots() error {
	p.spots = map[int64][]byte{}
	for _, s := range spots {
		if s.offset+s.length > p.size {
			continue
		}
		data, err := p.read(s.offset, s.length)
		if err != nil {
			return err
		}
		p.spots[s.offset] = data
	}
	return nil
}

func (p *probe) load(head, tail int64) (err error) {
	if p.head, err = p.read(0, min(head, p.size)); err != nil {
		return err
	}
	length := min(tail, p.size)
	p.tail, err = p.read(p.size-length, length)
	return err
}

// read reads exactly length bytes.
func (p *probe) read(offset, length int64) ([]byte, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	data := make([]byte, length)
	n, err := p.r.ReadAt(data, offset)
	if int64(n) == length {
		return data, nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("probe: read %d bytes at offset %d: %w", length, offset, err)
}

// at returns length bytes at an offset from the start (or, if negative, from
// the end) of the device; nil when they were not read.
func (p *probe) at(offset int64, length int) []byte {
	if data := p.spots[offset]; data != nil && length <= len(data) {
		return data[:length]
	}
	part, start := p.head, offset
	if offset < 0 {
		part, start = p.tail, int64(len(p.tail))+offset
	}
	if start < 0 || start+int64(length) > int64(len(part)) {
		return nil
	}
	return part[start : start+int64(length)]
}

// recognize asks in the order in which one format hides another: a RAID member
// or an encrypted device may contain what resembles a filesystem; a filesystem
// may contain a file with any content; a partition table's last sign
// (0x55AA) is in several other formats too.
func (p *probe) recognize() (Content, bool) {
	detectors := []func(*probe) (Content, bool){
		detectContainers, detectGPT, detectXFS, detectExt, detectBtrfs, detectBtrfsMirror, detectHidden, detectOthers,
		detectBackupGPT, detectMBR,
	}
	for _, detect := range detectors {
		if content, found := detect(p); found {
			return content, true
		}
	}
	return Content{}, false
}

// blankOrNot decides if no signature was found.
func (p *probe) blankOrNot() Content {
	if p.size <= 0 {
		return Content{Kind: Unrecognized, Detail: "the device has no size"}
	}
	if i := firstNonzero(p.head); i >= 0 {
		return unrecognized(int64(i))
	}
	for _, s := range spots {
		if i := firstNonzero(p.spots[s.offset]); i >= 0 {
			return unrecognized(s.offset + int64(i))
		}
	}
	if i := firstNonzero(p.tail); i >= 0 {
		return unrecognized(p.size - int64(len(p.tail)) + int64(i))
	}
	return Content{Kind: Blank}
}

func unrecognized(offset int64) Content {
	return Content{Kind: Unrecognized, Detail: fmt.Sprintf("data of unknown kind, from offset %d", offset)}
}

// firstNonzero is the index of the first byte that is not 0, or -1.
func firstNonzero(data []byte) int {
	var zeros [4 * kibi]byte
	for start := 0; start < len(data); start += len(zeros) {
		chunk := data[start:min(start+len(zeros), len(data))]
		if bytes.Equal(chunk, zeros[:len(chunk)]) {
			continue
		}
		for i, b := range chunk {
			if b != 0 {
				return start + i
			}
		}
	}
	return -1
}
