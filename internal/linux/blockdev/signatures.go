package blockdev

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// signature is a fixed text at a fixed offset; a negative offset counts from the
// end of the device.
type signature struct {
	name   string
	offset int64
	magic  string
}

// containers contain other devices, whose data must not be touched directly.
var containers = []signature{
	{"linux_raid_member", 0, "\xfc\x4e\x2b\xa9"},        // md 1.1
	{"linux_raid_member", 4 * kibi, "\xfc\x4e\x2b\xa9"}, // md 1.2
	{"isw_raid_member", -1024, "Intel Raid ISM Cfg Sig. "},
	{"LVM2_member", 24, "LVM2 001"}, {"LVM2_member", 512 + 24, "LVM2 001"},
	{"LVM2_member", 1024 + 24, "LVM2 001"}, {"LVM2_member", 1536 + 24, "LVM2 001"},
	{"crypto_LUKS", 0, "LUKS\xba\xbe"},
	{"BitLocker", 3, "-FVE-FS-"},
	{"bcache", 4*kibi + 24, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"},
	{"bcachefs", 4*kibi + 24, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"},
	{"vdo", 0, "dmvdo001"},
	{"stratis", 512 + 4, "!Stra0tis\x86\xff\x02^\x41rh"},
	{"ceph_bluestore", 0, "bluestore block device"},
	{"oracleasm", 32, "ORCLDISK"},
	{"VMFS_volume_member", mebi, "\x0d\xd0\x01\xc0"},
}

// hidden are second copies, at offsets where a sound filesystem may have a file of
// its user: they count only if no filesystem was found.
var hidden = []signature{
	{"crypto_LUKS", 16 * kibi, "SKUL\xba\xbe"}, {"crypto_LUKS", 32 * kibi, "SKUL\xba\xbe"},
	{"crypto_LUKS", 64 * kibi, "SKUL\xba\xbe"}, {"crypto_LUKS", 128 * kibi, "SKUL\xba\xbe"},
	{"crypto_LUKS", 256 * kibi, "SKUL\xba\xbe"}, {"crypto_LUKS", 512 * kibi, "SKUL\xba\xbe"},
	{"crypto_LUKS", mebi, "SKUL\xba\xbe"}, {"crypto_LUKS", 2 * mebi, "SKUL\xba\xbe"},
	{"crypto_LUKS", 4 * mebi, "SKUL\xba\xbe"},
}

// others are filesystems and the like that no volume of ours has.
var others = []signature{
	{"swap", 4096 - 10, "SWAPSPACE2"}, {"swap", 4096 - 10, "SWAP-SPACE"}, {"swap", 4096 - 10, "S1SUSPEND\x00"},
	{"swap", 8192 - 10, "SWAPSPACE2"}, {"swap", 16384 - 10, "SWAPSPACE2"}, {"swap", 65536 - 10, "SWAPSPACE2"},
	{"ntfs", 3, "NTFS    "}, {"exfat", 3, "EXFAT   "},
	{"vfat", 82, "FAT32   "}, {"vfat", 54, "FAT16   "}, {"vfat", 54, "FAT12   "}, {"vfat", 54, "FAT     "},
	{"squashfs", 0, "hsqs"}, {"squashfs", 0, "sqsh"},
	{"erofs", 1024, "\xe2\xe1\xf5\xe0"}, {"cramfs", 0, "\x45\x3d\xcd\x28"},
	{"iso9660", 32*kibi + 1, "CD001"}, {"udf", 32*kibi + 1, "BEA01"}, {"udf", 34*kibi + 1, "NSR0"},
	{"f2fs", 1024, "\x10\x20\xf5\xf2"}, {"f2fs", 5 * kibi, "\x10\x20\xf5\xf2"},
	{"nilfs2", 1024 + 6, "\x34\x34"},
	{"jfs", 32 * kibi, "JFS1"}, {"reiserfs", 64*kibi + 52, "ReIsEr"}, {"reiserfs", 8*kibi + 52, "ReIsEr"},
	{"gfs2", 64 * kibi, "\x01\x16\x19\x70\x00\x00\x00\x01"},
	{"ocfs2", 2 * kibi, "OCFSV2"}, {"ocfs2", 4 * kibi, "OCFSV2"}, {"ocfs2", 8 * kibi, "OCFSV2"},
	{"apfs", 32, "NXSB"}, {"hfsplus", 1024, "H+\x00\x04"}, {"hfsplus", 1024, "HX\x00\x05"},
	{"ufs", 8*kibi + 1372, "\x54\x19\x01\x00"}, {"ufs", 64*kibi + 1372, "\x19\x01\x54\x19"},
	{"VMFS", 2 * mebi, "\x5e\xf1\xab\x2f"},
	{"mac", 512, "PM\x00\x00"},
}

func (p *probe) match(table []signature) (Content, bool) {
	for _, s := range table {
		if data := p.at(s.offset, len(s.magic)); data != nil && string(data) == s.magic {
			return foreign(s.name, "at offset %d", s.offset), true
		}
	}
	return Content{}, false
}

func foreign(name, detail string, arguments ...any) Content {
	return Content{Kind: Foreign, Type: name, Detail: "a signature of " + name + " " + fmt.Sprintf(detail, arguments...)}
}

func detectOthers(p *probe) (Content, bool) { return p.match(others) }

func detectContainers(p *probe) (Content, bool) {
	if content, found := p.match(containers); found {
		return content, true
	}
	if data := p.at(-512, 36); data != nil && string(data[:4]) == "\xde\x11\xde\x11" && string(data[32:35]) == "01." {
		return foreign("ddf_raid_member", "at offset %d", p.size-512), true
	}
	return detectMD(p)
}

func detectHidden(p *probe) (Content, bool) {
	if content, found := p.match(hidden); found {
		return content, true
	}
	return detectZFS(p)
}

// detectMD looks for the superblocks that md keeps near the end: version 0.90,
// of either byte order, in the last whole 64 KiB but one; version 1.0 between 8
// and 12 KiB from the end (md(4), drivers/md/md.c). More than the magic is
// compared, since file content may be at these offsets.
func detectMD(p *probe) (Content, bool) {
	const reserved = 64 * kibi
	offset := p.size/reserved*reserved - reserved
	if sb := p.at(offset-p.size, 12); sb != nil {
		for _, order := range []binary.ByteOrder{little, big} {
			if order.Uint32(sb) == 0xa92b4efc && order.Uint32(sb[4:]) == 0 && order.Uint32(sb[8:]) >= 90 {
				return foreign("linux_raid_member", "0.90 at offset %d", offset), true
			}
		}
	}
	offset = (p.size/512 - 16) &^ 7 * 512
	if sb := p.at(offset-p.size, 152); sb != nil {
		if little.Uint32(sb) == 0xa92b4efc && little.Uint32(sb[4:]) == 1 && int64(little.Uint64(sb[144:])) == offset/512 {
			return foreign("linux_raid_member", "1.0 at offset %d", offset), true
		}
	}
	return Content{}, false
}

// detectZFS looks for the uberblocks of the four labels of 256 KiB, two at each
// end of the device: 128 KiB into a label, 128 of them of 1 KiB (fewer with
// larger sectors), each beginning with the magic in the writer's byte order.
func detectZFS(p *probe) (Content, bool) {
	const label = 256 * kibi
	end := p.size / label * label
	for _, start := range []int64{0, label, end - 2*label, end - label} {
		for ring := range int64(128) {
			offset := start + 128*kibi + ring*kibi
			data := p.anywhere(offset, 8)
			if data == nil {
				break
			}
			if magic := little.Uint64(data); magic == 0x00bab10c || bits.ReverseBytes64(magic) == 0x00bab10c {
				return foreign("zfs_member", "at offset %d", offset), true
			}
		}
	}
	return Content{}, false
}

// anywhere is at for an offset that may be in the head or in the tail.
func (p *probe) anywhere(offset int64, length int) []byte {
	if offset < 0 {
		return nil
	}
	if data := p.at(offset, length); data != nil {
		return data
	}
	if offset >= p.size {
		return nil
	}
	return p.at(offset-p.size, length)
}

// detectGPT looks for the header in the second block, with sectors of 512 and
// of 4096 bytes.
func detectGPT(p *probe) (Content, bool) { return p.gpt(512, 4096) }

// detectBackupGPT looks in the last block. It asks after the filesystems: who
// makes one on a whole disk leaves an old backup header behind.
func detectBackupGPT(p *probe) (Content, bool) { return p.gpt(-512, -4096) }

func (p *probe) gpt(offsets ...int64) (Content, bool) {
	for _, offset := range offsets {
		if data := p.at(offset, 8); data != nil && string(data) == "EFI PART" {
			return foreign("gpt", "at offset %d", offset), true
		}
	}
	return Content{}, false
}

// detectMBR accepts a boot sector only if its four entries make sense, since
// 0x55AA ends other sectors too. One whose entries are all empty is Foreign as
// well: a label was written there.
func detectMBR(p *probe) (Content, bool) {
	sector := p.at(0, 512)
	if sector == nil || sector[510] != 0x55 || sector[511] != 0xaa {
		return Content{}, false
	}
	for i := range 4 {
		entry := sector[446+16*i:][:16]
		if entry[0]&0x7f != 0 { // the boot flag is 0x00 or 0x80
			return Content{}, false
		}
	}
	return foreign("dos", "(a partition table) at offset 0"), true
}
