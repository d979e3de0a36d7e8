package local

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// Pools returns the state of the pool. It reads the blocks of every snapshot, and those of
// every volume if they were not measured for a minute, or changed by much since.
func (p *Pool) Pools(ctx context.Context) []backend.Pool {
	pool := backend.Pool{Name: p.options.Pool}
	pool.Conditions, _ = p.StorageHealth(ctx) // has no error
	if p.usable() != nil {
		return []backend.Pool{pool}
	}
	now, err := roomOf(p.top)
	if err != nil {
		return []backend.Pool{pool} // which is one of the conditions
	}
	if p.phase.recovered.Load() && (p.measurements.isOld() || p.drifted(now)) {
		if _, err := p.observe(ctx); err != nil {
			p.log.Warn("the volumes could not be measured; the metrics of the pool are not current", "error", err)
		}
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(descriptor(p.top), &stat); err != nil {
		return []backend.Pool{pool} // which is one of the conditions
	}
	unit := int64(stat.Frsize)
	pool.Size, pool.Available = int64(stat.Blocks)*unit, int64(stat.Bavail)*unit
	pool.Inodes, pool.InodesFree = int64(stat.Files), int64(stat.Ffree)
	if p.copyOnWrite {
		pool.Inodes, pool.InodesFree = 0, 0 // a btrfs has no fixed number
	}
	volumes := p.ledger.totals()
	pool.Promised = volumes.promised
	left := p.leftovers()
	pool.Used = attribute(int64(stat.Blocks-stat.Bfree)*unit, volumes, p.snapshotBytes(ctx), left.partial.bytes, left.trash.bytes)
	return []backend.Pool{pool}
}

// snapshotBytes adds up what the snapshots occupy, shared blocks included.
func (p *Pool) snapshotBytes(ctx context.Context) (total int64) {
	all := func(snapshotRecord) bool { return true }
	for _, record := range page(&p.index, func(x *index) map[string]snapshotRecord { return x.snapshots }, all, "", 0) {
		if ctx.Err() != nil {
			return total
		}
		data, err := p.openData(snapshotPath(record.ID), os.O_RDONLY)
		if err != nil {
			continue // deleted meanwhile, or missing, which health reports
		}
		bytes, _ := allocated(data)
		total += bytes
		_ = data.Close()
	}
	return total
}

// attachedVolumes are the IDs of volumes whose data file some loop device may have: of
// another pool's volume of the same ID, too.
func (p *Pool) attachedVolumes() (map[string]bool, error) {
	files, err := blockdev.BackingFiles()
	attached := map[string]bool{}
	for _, file := range files {
		if filepath.Base(file) == dataFile {
			attached[filepath.Base(filepath.Dir(file))] = true
		}
	}
	return attached, err
}

// NodeVolumes lists the volumes of the pool with their devices.
func (p *Pool) NodeVolumes(ctx context.Context) ([]backend.NodeVolume, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	if err := p.refreshForeign(); err != nil {
		return nil, classify(err)
	}
	attached, err := p.attachedVolumes()
	if err != nil {
		return nil, err
	}
	all := func(volumeRecord) bool { return true }
	records := page(&p.index, func(x *index) map[string]volumeRecord { return x.volumes }, all, "", 0)
	volumes := make([]backend.NodeVolume, 0, len(records))
	for _, record := range records {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		volume := backend.NodeVolume{ID: record.ID, Size: record.Size, Inline: record.Inline != nil}
		if attached[record.ID] {
			if volume.Devices, err = p.Devices(ctx, record.ID); err != nil {
				p.log.Warn("the devices of a volume cannot be listed", "volume", record.ID, "error", err)
			}
			volume.Frozen, _ = p.froze(record.ID)
		}
		volumes = append(volumes, volume)
	}
	return volumes, nil
}
