package windows

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	ntfs           = "NTFS"
	defaultCluster = 4096
	mostCluster    = 2 * mebibyte
	mostClusters   = 1<<32 - 1 // of an NTFS
	leastNTFS      = 8 * mebibyte
)

// kinds are the filesystems that Windows mounts.
var kinds = []string{ntfs, "ReFS", "FAT32", "exFAT"}

// filesystem is the filesystem of a volume, with its files.
type filesystem struct {
	kind, label string
	serial      uint32
	sector      int64
	sectors     int64 // of the volume that it was made or extended for
	cluster     int64 // bytes
	used        int64 // bytes, of whole clusters
	root        *node
	shortNames  bool
	dirty       bool      // files were written since the last flush
	generation  int       // counts dismounts: handles of an earlier one are void
	volume      *volume   // nil while it is on no volume
	shows       time.Time // when Windows recognises it
}

// makeFilesystem formats a partition. Its errors are those of MSFT_Volume.Format.
func (d *disk) makeFilesystem(p *partition, request win32.FormatRequest) error {
	if !slices.Contains(kinds, request.FileSystem) {
		return win32.StorageFileSystemNotSupported
	}
	cluster := int64(request.ClusterSize)
	if cluster == 0 {
		cluster = max(defaultCluster, d.sector)
		for p.Length/cluster > mostClusters {
			cluster *= 2
		}
	}
	if cluster < d.sector || cluster > mostCluster || cluster&(cluster-1) != 0 || p.Length/cluster > mostClusters ||
		p.Length < leastNTFS {
		return win32.StorageClusterSizeInvalid
	}
	fs := &filesystem{
		kind: request.FileSystem, label: request.Label, serial: binary.LittleEndian.Uint32(sha(fmt.Sprint(p.ID, p.Offset))),
		sector: d.sector, sectors: p.Length / d.sector, cluster: cluster,
	}
	fs.used = min(p.Length/8, 16*mebibyte) / cluster * cluster // the filesystem's own
	fs.root = &node{fs: fs, dir: true, children: map[string]*node{}}
	if old := d.filesystems[p.Offset]; old != nil {
		old.dismount()
	}
	d.filesystems[p.Offset] = fs
	d.writeBootSectors(p, fs)
	return nil
}

// writeBootSectors writes the first sector of the volume and, as NTFS has it, its
// copy in the last.
func (d *disk) writeBootSectors(p *partition, fs *filesystem) {
	boot := make([]byte, d.sector)
	copy(boot, "\xEB\x52\x90"+fs.kind+"    ")
	binary.LittleEndian.PutUint16(boot[11:], uint16(d.sector))
	binary.LittleEndian.PutUint64(boot[40:], uint64(fs.sectors-1))
	boot[510], boot[511] = 0x55, 0xAA
	d.data.write(boot, p.Offset)
	if fs.kind == ntfs {
		d.data.write(boot, p.Offset+(fs.sectors-1)*d.sector)
	}
}

// extend makes the filesystem larger; the copy of the boot sector moves.
func (d *disk) extend(p *partition, fs *filesystem, total int64) {
	if fs.kind == ntfs {
		d.data.erase(p.Offset+(fs.sectors-1)*d.sector, d.sector)
	}
	fs.sectors = total
	d.writeBootSectors(p, fs)
}

// clusters are how many the filesystem has: an NTFS leaves the volume's last
// sector to the copy of its boot sector.
func (fs *filesystem) clusters() int64 {
	if fs.kind == ntfs {
		return (fs.sectors - 1) * fs.sector / fs.cluster
	}
	return fs.sectors * fs.sector / fs.cluster
}

func (fs *filesystem) space() (total, free int64) {
	total = fs.clusters() * fs.cluster
	return total, total - fs.used
}

func (fs *filesystem) volumeData() win32.NTFSVolumeData {
	total, free := fs.space()
	return win32.NTFSVolumeData{
		Serial: uint64(fs.serial), Sectors: fs.sectors - 1, Clusters: total / fs.cluster, FreeClusters: free / fs.cluster,
		BytesPerSector: uint32(fs.sector), BytesPerCluster: uint32(fs.cluster),
	}
}

// dismount makes all handles of the filesystem void.
func (fs *filesystem) dismount() {
	fs.generation++
	fs.root.forget()
}

// writable returns the error of the filesystem for a change.
func (fs *filesystem) writable() error {
	switch {
	case fs.volume == nil:
		return win32.ErrorFileInvalid
	case fs.volume.disk.readOnly():
		return win32.ErrorWriteProtect
	case fs.volume.lock != nil:
		return win32.ErrorAccessDenied
	}
	return nil
}
