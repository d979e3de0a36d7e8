package host

import (
	"fmt"
	"math"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// growth is what has to be known to grow a partition.
type growth struct {
	layout win32.DriveLayout
	offset int64 // where the partition begins
	disk   int64 // bytes of the disk
	sector int64
	// cluster is the filesystem's unit: growth by less is none.
	cluster int64
	desired int64 // bytes; 0 for all there is
}

// partitionAt finds the partition that begins at an offset.
func partitionAt(layout win32.DriveLayout, offset int64) (win32.Partition, bool) {
	for _, p := range usedPartitions(layout) {
		if p.Offset == offset {
			return p, true
		}
	}
	return win32.Partition{}, false
}

// tableEnd is where the space of a table's partitions ends.
func tableEnd(layout win32.DriveLayout, disk, sector int64) int64 {
	if layout.Style == win32.StyleGPT {
		return min(layout.UsableOffset+layout.UsableLength, disk)
	}
	// An MBR counts sectors in 32 bits.
	return min(disk, math.MaxUint32*sector)
}

// usableEnd is where the last partition ends when it has all there is: aligned, as
// the partitions that are made here end.
func usableEnd(layout win32.DriveLayout, disk, sector int64) int64 {
	return alignDown(tableEnd(layout, disk, sector))
}

// tableIsBehind reports whether a GPT still ends where the disk ended before it
// grew: less than its second copy (33 sectors) lies between the two otherwise.
func tableIsBehind(layout win32.DriveLayout, disk, sector int64) bool {
	return layout.Style == win32.StyleGPT && disk-tableEnd(layout, disk, sector) > 33*sector+alignment
}

// isHeldUp reports whether it is the table that keeps the partition from the size
// that is desired.
func (g growth) isHeldUp() bool {
	return tableIsBehind(g.layout, g.disk, g.sector) && (g.desired == 0 || g.offset+g.desired > tableEnd(g.layout, g.disk, g.sector))
}

// plan says by how many bytes the partition is to grow. A size that is smaller
// than the partition, or not larger by a cluster, is 0; one beyond the disk is
// ErrOutOfRange. One between the end of the partitions' space and the end of the
// disk is what a caller gets that asks for the size of its disk: all there is.
func (g growth) plan() (int64, error) {
	p, found := partitionAt(g.layout, g.offset)
	switch {
	case !found:
		return 0, fmt.Errorf("%w: no partition begins at byte %d of the disk", backend.ErrNotFound, g.offset)
	case g.desired < 0:
		return 0, fmt.Errorf("%w: a size of %d bytes", backend.ErrInvalid, g.desired)
	case g.cluster <= 0:
		return 0, fmt.Errorf("%w: clusters of %d bytes", backend.ErrPrecondition, g.cluster)
	case g.desired > g.disk:
		return 0, fmt.Errorf("%w: %d bytes are asked for, and the disk has %d; grow the disk first", backend.ErrOutOfRange, g.desired, g.disk)
	case g.desired != 0 && g.desired-p.Length < g.cluster:
		return 0, nil
	}
	for _, other := range usedPartitions(g.layout) {
		if other.Offset > p.Offset {
			return 0, fmt.Errorf("%w: partition %d lies behind partition %d, which cannot grow", backend.ErrPrecondition, other.Number, p.Number)
		}
	}
	length := usableEnd(g.layout, g.disk, g.sector) - p.Offset
	if g.desired != 0 {
		length = min(length, g.desired)
	}
	return max(0, (length-p.Length)/g.cluster*g.cluster), nil
}

// filesystemIsBehind reports whether NTFS has not got all of its partition: what
// is left when a growth was interrupted between the two. NTFS leaves the last
// sector to the copy of its boot sector.
func filesystemIsBehind(ntfs win32.NTFSVolumeData, partition int64) bool {
	sector, cluster := int64(ntfs.BytesPerSector), int64(ntfs.BytesPerCluster)
	return sector > 0 && cluster > 0 && partition/sector-ntfs.Sectors-1 >= cluster/sector
}
