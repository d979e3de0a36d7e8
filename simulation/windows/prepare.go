package windows

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// prepare writes the content of the spec to the disk.
func (d *disk) prepare() error {
	spec := d.spec
	request := win32.CreateDisk{Style: win32.StyleGPT, DiskID: win32.NewGUID(), MaxPartitions: leastEntries}
	switch spec.Style {
	case "", "raw":
		if spec.FileSystem != "" {
			return fmt.Errorf("simulated: a filesystem needs a partition")
		}
		return nil
	case "mbr":
		request = win32.CreateDisk{Style: win32.StyleMBR, Signature: binary.LittleEndian.Uint32(request.DiskID[:])}
	case "gpt", "data":
	default:
		return fmt.Errorf("simulated: a disk of style %q", spec.Style)
	}
	if d.size < mebibyte {
		return fmt.Errorf("simulated: %d bytes are too small for a table", d.size)
	}
	d.setTable(request)
	entries := d.preparedEntries()
	if err := d.checkEntries(entries); err != nil {
		return fmt.Errorf("simulated: the partitions do not fit: %w", err)
	}
	d.table.partitions = entries
	d.writeTable()
	if spec.FileSystem == "" || len(entries) == 0 {
		return nil
	}
	last := entries[len(entries)-1]
	return d.makeFilesystem(last, win32.FormatRequest{FileSystem: spec.FileSystem})
}

func (d *disk) preparedEntries() []*partition {
	start, end := d.usable()
	start = (start + mebibyte - 1) / mebibyte * mebibyte
	var entries []*partition
	data := win32.Partition{Style: d.table.style, MBRType: mbrTypeNTFS, Number: 1}
	switch d.spec.Style {
	case "gpt":
		return nil
	case "data":
		entries = append(entries, &partition{Partition: win32.Partition{
			Style: win32.StyleGPT, Offset: start, Length: reservedSize, Number: 1, Type: win32.PartitionReserved, ID: win32.NewGUID(),
		}})
		start += reservedSize
		data = win32.Partition{Style: win32.StyleGPT, Number: 2, Type: win32.PartitionBasicData, ID: win32.NewGUID()}
		if !d.spec.DriveLetter {
			data.Attributes = win32.GPTNoDriveLetter
		}
	}
	data.Offset, data.Length = start, (end-start)/mebibyte*mebibyte
	if d.spec.DataSize > 0 {
		data.Length = d.spec.DataSize
	}
	return append(entries, &partition{Partition: data})
}
