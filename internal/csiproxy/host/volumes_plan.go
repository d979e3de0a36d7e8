package host

import (
	"fmt"
	"math"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// growth is the state from which the growth of a partition is planned.
type growth struct {
	layout win32.DriveLayout
	offset int64 // where the partition begins
	disk   int64 // bytes of the disk
	sector int64
	// cluster is the filesystem's unit in bytes: a partition grows by whole clusters.
	cluster int64
	desired int64 // bytes; 0 for all of the disk
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

// tableEnd is the end of the space that a table has for partitions.
func tableEnd(layout win32.DriveLayout, disk, sector int64) int64 {
	if layout.Style == win32.StyleGPT {
		return min(layout.UsableOffset+layout.UsableLength, disk)
	}
	// An MBR counts sectors in 32 bits.
	return min(disk, math.MaxUint32*sector)
}

// usableEnd is the end of a last partition that has all space: aligned, like the
// partitions that this package makes.
func usableEnd(layout win32.DriveLayout, disk, sector int64) int64 {
	return alignDown(tableEnd(layout, disk, sector))
}

// tableIsBehind reports whether a GPT still ends where the disk ended before it grew.
// Otherwise no more than its second copy (33 sectors) lies behind its end.
func tableIsBehind(layout win32.DriveLayout, disk, sector int64) bool {
	return layout.Style == win32.StyleGPT && disk-tableEnd(layout, disk, sector) > 33*sector+alignment
}

// isHeldUp reports whether the end of the table prevents the desired size.
func (g growth) isHeldUp() bool {
	return tableIsBehind(g.layout, g.disk, g.sector) &&
		(g.desired == 0 || g.offset+g.desired > tableEnd(g.layout, g.disk, g.sector))
}

// plan returns the number of bytes by which the partition grows. It is 0 for a desired
// size that exceeds the partition by less than a cluster, or not at all. A size beyond
// the disk is ErrOutOfRange. A size between the end of the partitions' space and the end
// of the disk means all space: callers ask for the size of the disk.
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
		return 0, fmt.Errorf("%w: %d bytes are required, and the disk has %d; grow the disk first",
			backend.ErrOutOfRange, g.desired, g.disk)
	case g.desired != 0 && g.desired-p.Length < g.cluster:
		return 0, nil
	}
	for _, other := range usedPartitions(g.layout) {
		if other.Offset > p.Offset {
			return 0, fmt.Errorf("%w: partition %d lies behind partition %d, which cannot grow",
				backend.ErrPrecondition, other.Number, p.Number)
		}
	}
	length := usableEnd(g.layout, g.disk, g.sector) - p.Offset
	if g.desired != 0 {
		length = min(length, g.desired)
	}
	return max(0, (length-p.Length)/g.cluster*g.cluster), nil
}

// filesystemIsBehind reports whether NTFS is smaller than its partition, as after a
// growth that was interrupted between the two. NTFS leaves the last sector to the copy
// of its boot sector.
func filesystemIsBehind(ntfs win32.NTFSVolumeData, partition int64) bool {
	sector, cluster := int64(ntfs.BytesPerSector), int64(ntfs.BytesPerCluster)
	return sector > 0 && cluster > 0 && partition/sector-ntfs.Sectors-1 >= cluster/sector
}
