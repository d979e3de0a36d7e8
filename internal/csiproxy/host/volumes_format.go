package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// recogniseLimit bounds the time in which Windows must recognise a new filesystem.
const recogniseLimit = 5 * time.Second

// ntfsName is the only filesystem that Format makes.
const ntfsName = "NTFS"

// begunFormat is the intent of a format: it identifies the stretch of a disk that was
// positively blank when its format began. All of it must match when a repeated call
// completes the format: a volume's name alone may belong to another disk by then.
type begunFormat struct {
	Volume            string
	Page83, Serial    string
	DiskID, Partition string
	Offset, Length    int64
}

func formatRecord(volume string) string {
	return "format-" + strings.Trim(strings.TrimPrefix(volume, `\\?\Volume`), `{}\`)
}

// Format makes an NTFS on a volume that Windows calls raw, after it has read all ranges
// that can contain a signature and found them blank. It rejects any other volume.
//
// An interrupted format leaves blocks that are not blank, so that every repeated call
// would be rejected. Therefore Format writes an intent before the first block: this
// stretch of this disk was blank. It removes the intent when it has read the filesystem
// back. With an intent, a repeated call formats again if the volume is still raw, the
// stretch is the same, and its content can only be that of an interrupted format of
// NTFS. It rejects any other data. It never formats a volume whose filesystem Windows
// recognises: then the earlier format is complete.
//
// A call that waited while another call formatted the volume returns success: it is the
// same call, repeated by a caller whose deadline had passed.
func (v volumes) Format(ctx context.Context, volumeID, fileSystem string) error {
	if fileSystem != "" && !strings.EqualFold(fileSystem, ntfsName) {
		return fmt.Errorf("%w: filesystem %.50q; volumes are formatted with %s only", backend.ErrInvalid,
			fileSystem, ntfsName)
	}
	name, err := win32.ParseVolumeName(volumeID)
	if err != nil {
		return err
	}
	before := v.formats.now(name)
	return v.change(ctx, name, nil, func(ctx context.Context, name string) error {
		return during(v.format(ctx, name, before), "format volume %s", name)
	})
}

func (v volumes) format(ctx context.Context, name string, before int) error {
	extent, err := v.whole(name)
	if err != nil {
		return err
	}
	stretch, sector, err := v.identify(name, extent)
	if err != nil {
		return err
	}
	begun, err := v.isRecorded(name, stretch)
	if err != nil {
		return err
	}
	existing, err := v.filesystemOf(name)
	switch {
	case err != nil && (!begun || !isErrno(err, win32.ErrorFileCorrupt, win32.ErrorDiskCorrupt)):
		return err
	case existing == ntfsName && (begun || v.formats.now(name) != before):
		return v.formatted(ctx, name, extent)
	case existing != "":
		return fmt.Errorf("%w: it has a filesystem, %s, and keeps it", backend.ErrPrecondition, existing)
	}
	half, err := v.mayFormat(ctx, name, extent, sector, begun)
	if err != nil {
		return err
	}
	if half { // or complete, and not recognised yet
		made, err := v.recognised(ctx, name)
		if err != nil {
			return err
		}
		if made == ntfsName {
			return v.formatted(ctx, name, extent)
		}
	}
	if err := v.records.write(formatRecord(name), stretch); err != nil {
		return err
	}
	if err := v.makeFilesystem(ctx, name); err != nil {
		return err
	}
	return v.formatted(ctx, name, extent)
}

// makeFilesystem formats the volume once WMI lists it, which may be some time after
// its arrival.
func (v volumes) makeFilesystem(ctx context.Context, name string) error {
	var failure error
	listed, err := poll(ctx, volumeLimit, func() (bool, error) {
		if made, err := v.filesystemOf(name); err == nil && made != "" {
			failure = nil // Windows recognises the result of an earlier format now
			return true, nil
		}
		failure = v.machine.Volumes.Format(ctx, name, win32.FormatRequest{FileSystem: ntfsName})
		return !isErrno(failure, win32.ErrorNotFound), nil
	})
	if err != nil {
		return fmt.Errorf("make %s: %w: %w", ntfsName, err, failure)
	}
	if !listed {
		return failedAs(backend.ErrUnavailable, failure,
			"make %s: WMI has not listed the volume within %s; repeat the call", ntfsName, volumeLimit)
	}
	return failed(failure, "make %s", ntfsName)
}

// isRecorded reports whether an intent to format this stretch exists.
func (v volumes) isRecorded(name string, now begunFormat) (bool, error) {
	var earlier begunFormat
	begun, err := v.records.read(formatRecord(name), &earlier)
	return begun && earlier == now, err
}

// hasBegun is isRecorded for the stretch that a volume is on now.
func (v volumes) hasBegun(name string) (bool, error) {
	extent, err := v.whole(name)
	if err != nil {
		return false, err
	}
	stretch, _, err := v.identify(name, extent)
	if err != nil {
		return false, err
	}
	return v.isRecorded(name, stretch)
}

// recognised returns the filesystem that Windows recognises within recogniseLimit; "" for
// none, and for a damaged one.
func (v volumes) recognised(ctx context.Context, name string) (string, error) {
	var now string
	_, err := poll(ctx, recogniseLimit, func() (_ bool, err error) {
		now, err = v.filesystemOf(name)
		if isErrno(err, win32.ErrorFileCorrupt, win32.ErrorDiskCorrupt) {
			return true, nil
		}
		return now != "", err
	})
	return now, err
}

// mayFormat reads the volume's blocks and rejects content that must not be overwritten.
// half reports the content of an interrupted format.
func (v volumes) mayFormat(
	ctx context.Context, name string, extent win32.DiskExtent, sector int64, begun bool,
) (half bool, err error) {
	content, err := withVolume(v.Host, name, win32.Read, func(device win32.Device) (content, error) {
		return readContent(ctx, device, stretch{0, extent.Length}, sector)
	})
	if err != nil {
		return false, err
	}
	if _, used := content.used(); !used || begun && content.isHalfMadeNTFS() {
		return used, nil
	}
	return false, fmt.Errorf("%w: Windows calls it raw, but it is not blank: it has %v; it was not changed, so clear "+
		"it by hand if it is not needed",
		backend.ErrPrecondition, content)
}

// formatted reads back the new filesystem, once Windows recognises it, and removes the
// intent.
func (v volumes) formatted(ctx context.Context, name string, extent win32.DiskExtent) error {
	now, err := v.recognised(ctx, name)
	if err != nil {
		return err
	}
	if now != ntfsName {
		return fmt.Errorf("the format answered success, but the filesystem is %q", now)
	}
	data, err := v.ntfsOf(name)
	if err != nil {
		return err
	}
	if data.Clusters <= 0 || data.BytesPerCluster == 0 || data.Clusters > extent.Length/int64(data.BytesPerCluster) {
		return fmt.Errorf("the new filesystem has %d clusters of %d bytes on a partition of %d bytes",
			data.Clusters, data.BytesPerCluster, extent.Length)
	}
	if err := v.records.remove(formatRecord(name)); err != nil {
		return err
	}
	v.formats.add(name)
	return nil
}

func (h *Host) ntfsOf(name string) (win32.NTFSVolumeData, error) {
	return withVolume(h, name, win32.Read, func(device win32.Device) (win32.NTFSVolumeData, error) {
		return answer(device, win32.FsctlGetNTFSVolumeData, nil, win32.DecodeNTFSVolumeData)
	})
}

// identify returns what identifies the stretch of a disk that a volume is on, and
// the size of its sectors in bytes.
func (v volumes) identify(name string, extent win32.DiskExtent) (begunFormat, int64, error) {
	id := begunFormat{Volume: name, Offset: extent.Offset, Length: extent.Length}
	var sector int64
	_, err := withDisk(v.Host, extent.Disk, win32.Query, func(device win32.Device) (struct{}, error) {
		layout, err := layoutOf(device)
		if err != nil {
			return struct{}{}, err
		}
		geometry, err := geometryOf(device)
		if err != nil {
			return struct{}{}, err
		}
		disk := v.describe(device, extent.Disk)
		sector = int64(geometry.BytesPerSector)
		id.Page83, id.Serial, id.DiskID = disk.Page83, disk.SerialNumber, layout.DiskID.String()
		if layout.Style == win32.StyleMBR {
			id.DiskID = fmt.Sprintf("MBR %#x", layout.Signature)
		}
		p, found := partitionAt(layout, extent.Offset)
		if !found {
			return struct{}{}, fmt.Errorf("%w: no partition begins at byte %d, where the volume begins",
				backend.ErrPrecondition, extent.Offset)
		}
		id.Partition = p.ID.String()
		return struct{}{}, nil
	})
	return id, sector, err
}
