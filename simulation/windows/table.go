package windows

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	mebibyte       = 1 << 20
	reservedSize   = 16 * mebibyte // of the partition that Windows makes for itself
	entrySize      = 128           // of a GPT entry
	leastEntries   = 128
	mostEntries    = 1024
	mostMBRSectors = 1<<32 - 1
	mbrTypeNTFS    = 7
)

// table is a partition table as Windows has read it.
type table struct {
	style      win32.PartitionStyle
	id         win32.GUID
	signature  uint32
	maximum    uint32 // entries
	end        int64  // the size of the disk that it was written for
	partitions []*partition
}

// partition is an entry, and its volume while that is there or about to arrive.
type partition struct {
	win32.Partition
	volume *volume
}

// usable are the bytes that partitions may have: between the two copies of the
// GPT, or behind the MBR.
func (d *disk) usable() (start, end int64) {
	if d.table.style == win32.StyleMBR {
		return d.sector, min(d.known, mostMBRSectors*d.sector)
	}
	entries := max(int64(d.table.maximum), leastEntries) * entrySize
	entries = (entries + d.sector - 1) / d.sector * d.sector
	return 2*d.sector + entries, d.table.end - d.sector - entries
}

// layout is the answer of IOCTL_DISK_GET_DRIVE_LAYOUT_EX.
func (d *disk) layout() win32.DriveLayout {
	l := win32.DriveLayout{Style: d.table.style, DiskID: d.table.id, Signature: d.table.signature}
	if d.table.style == win32.StyleGPT {
		start, end := d.usable()
		l.UsableOffset, l.UsableLength, l.MaxPartitions = start, end-start, d.table.maximum
	}
	for _, p := range d.table.partitions {
		l.Partitions = append(l.Partitions, p.Partition)
	}
	if d.table.style == win32.StyleMBR { // always four entries, and more in extended ones
		for len(l.Partitions)%4 != 0 || len(l.Partitions) == 0 {
			l.Partitions = append(l.Partitions, win32.Partition{Style: win32.StyleMBR})
		}
	}
	return l
}

// createTable writes a new, empty table to the disk, or none with StyleRaw. Windows
// overwrites any table.
func (m *Machine) createTable(d *disk, request win32.CreateDisk) error {
	if err := d.writable(); err != nil {
		return err
	}
	if d.system {
		return win32.ErrorAccessDenied
	}
	if request.Style > win32.StyleRaw || request.MaxPartitions > mostEntries || d.known < mebibyte {
		return win32.ErrorInvalidParameter
	}
	if n := len(d.table.partitions); n > 0 {
		m.lose("disk %s: a table of %d partitions was overwritten", d.spec.Serial, n)
	} else if d.table.style == win32.StyleRaw && !d.data.blank(0, d.size) {
		m.lose("disk %s: data without a table was overwritten", d.spec.Serial)
	}
	m.takeOffline(d)
	d.setTable(request)
	return nil
}

func (d *disk) setTable(request win32.CreateDisk) {
	d.table = table{style: request.Style, end: d.known}
	switch request.Style {
	case win32.StyleGPT:
		d.table.id, d.table.maximum = request.DiskID, max(request.MaxPartitions, leastEntries)
	case win32.StyleMBR:
		d.table.signature = request.Signature
	}
	d.writeTable()
}

// writeTable writes the table to the sectors where it belongs, so that who reads
// them sees that the disk is in use.
func (d *disk) writeTable() {
	start := 2*d.sector + max(int64(d.table.maximum), leastEntries)*entrySize
	d.data.erase(0, start)
	if d.table.style == win32.StyleRaw {
		return
	}
	boot := make([]byte, 512)
	boot[510], boot[511] = 0x55, 0xAA
	if d.table.style == win32.StyleMBR {
		binary.LittleEndian.PutUint32(boot[440:], d.table.signature)
		for i, p := range d.table.partitions[:min(4, len(d.table.partitions))] {
			entry := boot[446+16*i:]
			entry[4] = p.MBRType
			binary.LittleEndian.PutUint32(entry[8:], uint32(p.Offset/d.sector))
			binary.LittleEndian.PutUint32(entry[12:], uint32(p.Length/d.sector))
		}
		d.data.write(boot, 0)
		return
	}
	boot[450] = 0xEE
	d.data.write(boot, 0)
	header := append([]byte("EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00"), make([]byte, 76)...)
	copy(header[56:], d.table.id[:])
	entries := make([]byte, len(d.table.partitions)*entrySize)
	for i, p := range d.table.partitions {
		entry := entries[i*entrySize:]
		copy(entry, p.Type[:])
		copy(entry[16:], p.ID[:])
		binary.LittleEndian.PutUint64(entry[32:], uint64(p.Offset/d.sector))
		binary.LittleEndian.PutUint64(entry[40:], uint64((p.Offset+p.Length)/d.sector-1))
		binary.LittleEndian.PutUint64(entry[48:], p.Attributes)
	}
	d.data.write(header, d.sector)
	d.data.write(entries, 2*d.sector)
	_, end := d.usable()
	d.data.erase(end, d.table.end-end)
	d.data.write(entries, end)
	d.data.write(header, d.table.end-d.sector)
}

// setLayout writes the entries of a table (IOCTL_DISK_SET_DRIVE_LAYOUT_EX). One
// without RewritePartition is taken to be as it is on the disk.
func (m *Machine) setLayout(d *disk, request win32.DriveLayout) error {
	if err := d.writable(); err != nil {
		return err
	}
	if d.system {
		return win32.ErrorAccessDenied
	}
	if d.table.style == win32.StyleRaw || request.Style != d.table.style {
		return win32.ErrorInvalidParameter
	}
	entries, err := d.entries(request.Partitions)
	if err != nil {
		return err
	}
	for _, old := range d.table.partitions {
		if i := slices.IndexFunc(entries, old.same); i >= 0 {
			entries[i].volume = old.volume
			if old.volume != nil {
				old.volume.partition = entries[i]
			}
			continue
		}
		if d.filesystems[old.Offset] != nil {
			m.lose("disk %s: the partition at %d with a filesystem was removed", d.spec.Serial, old.Offset)
		}
		m.takeVolume(old)
	}
	d.table.partitions = entries
	d.writeTable()
	m.bringOnline(d)
	return nil
}

// newIdentity sets new names of the disk and its partitions, as Windows does when a
// clone is brought online next to its original.
func (d *disk) newIdentity() {
	d.table.id = win32.NewGUID()
	d.table.signature = binary.LittleEndian.Uint32(d.table.id[:])
	for _, p := range d.table.partitions {
		if p.Style == win32.StyleGPT {
			p.ID = win32.NewGUID()
		}
	}
	d.writeTable()
}

// same reports whether an entry is that of the same partition, perhaps longer.
func (p *partition) same(other *partition) bool {
	return p.Offset == other.Offset && p.ID == other.ID && p.Type == other.Type && p.MBRType == other.MBRType
}

// entries checks the entries of a new table.
func (d *disk) entries(request []win32.Partition) ([]*partition, error) {
	var entries []*partition
	for i, p := range request {
		if p.Style == win32.StyleGPT && p.Type == (win32.GUID{}) || p.Style == win32.StyleMBR && p.MBRType == 0 {
			continue // unused
		}
		p.Number = uint32(i + 1)
		if !p.Rewrite {
			old := slices.IndexFunc(d.table.partitions, (&partition{Partition: p}).same)
			if old < 0 {
				continue
			}
			p = d.table.partitions[old].Partition
			p.Number = uint32(i + 1)
		}
		p.Rewrite = false
		entries = append(entries, &partition{Partition: p})
	}
	return entries, d.checkEntries(entries)
}

// checkEntries refuses entries that leave the usable space, overlap, or share an
// identity.
func (d *disk) checkEntries(entries []*partition) error {
	start, end := d.usable()
	most := int(d.table.maximum)
	if d.table.style == win32.StyleMBR {
		most = 4
	}
	if len(entries) > most {
		return win32.ErrorInvalidParameter
	}
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b *partition) int { return cmp.Compare(a.Offset, b.Offset) })
	ids := map[win32.GUID]bool{}
	for _, p := range sorted {
		if p.Style != d.table.style || p.Offset%d.sector != 0 || p.Length%d.sector != 0 || p.Length <= 0 ||
			p.Offset < start || p.Length > end-p.Offset || p.Style == win32.StyleGPT && ids[p.ID] {
			return win32.ErrorInvalidParameter
		}
		start, ids[p.ID] = p.Offset+p.Length, true
	}
	return nil
}

// growPartition makes a partition longer (IOCTL_DISK_GROW_PARTITION). The
// filesystem in it stays as it is.
func (m *Machine) growPartition(d *disk, request win32.GrowPartition) error {
	if err := d.writable(); err != nil {
		return err
	}
	i := slices.IndexFunc(d.table.partitions, func(p *partition) bool { return p.Number == request.Number })
	if i < 0 || request.Bytes <= 0 || request.Bytes%d.sector != 0 {
		return win32.ErrorInvalidParameter
	}
	p := d.table.partitions[i]
	_, end := d.usable()
	for _, other := range d.table.partitions {
		if other.Offset > p.Offset {
			end = min(end, other.Offset)
		}
	}
	if request.Bytes > end-p.Offset-p.Length {
		return win32.ErrorInvalidParameter
	}
	p.Length += request.Bytes
	d.writeTable()
	return nil
}

// updateDriveSize is IOCTL_DISK_UPDATE_DRIVE_SIZE, which IOCTL_DISK_GROW_PARTITION
// needs on a disk that has grown ("used in conjunction with", its page says).
func (m *Machine) updateDriveSize(d *disk) (win32.Geometry, error) {
	if err := d.writable(); err != nil {
		return win32.Geometry{}, err
	}
	if d.sized != d.size {
		d.sized, d.lag = d.size, m.options.UsableLag
	}
	m.update(d)
	return d.geometry(), nil
}

// update is IOCTL_DISK_UPDATE_PROPERTIES: Windows reads the disk's size again. The
// second copy of a GPT goes to the new end only if that was asked for by
// IOCTL_DISK_UPDATE_DRIVE_SIZE; see Options.UsableLag.
func (m *Machine) update(d *disk) {
	d.known = d.size
	if d.sized != d.size || d.table.style != win32.StyleGPT || d.table.end == d.known || d.writable() != nil {
		return
	}
	if d.lag > 0 {
		d.lag--
		return
	}
	_, end := d.usable()
	d.data.erase(end, d.table.end-end)
	d.table.end = d.known
	d.writeTable()
}

func (m *Machine) lose(format string, args ...any) {
	m.losses = append(m.losses, fmt.Sprintf(format, args...))
}
