package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// recordOnDisk reads the record of a complete volume. The node half never
// trusts the index: another process may be the controller half.
func (p *Pool) recordOnDisk(id string) (volumeRecord, error) {
	if err := p.usable(); err != nil {
		return volumeRecord{}, err
	}
	if !isVolumeID(id) {
		return volumeRecord{}, fmt.Errorf("%w: volume %.128q", backend.ErrNotFound, id)
	}
	record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && record.State != ready) {
		return volumeRecord{}, fmt.Errorf("%w: volume %s", backend.ErrNotFound, id)
	}
	return record, classify(err)
}

// OpenDevice attaches the volume's file to a loop device, or finds the one that
// has it and gives it the access that is asked for.
func (p *Pool) OpenDevice(ctx context.Context, request backend.DeviceRequest) (*backend.Device, error) {
	if _, err := p.recordOnDisk(request.VolumeID); err != nil {
		return nil, err
	}
	lock, err := p.awaitLock(ctx, volumePath(request.VolumeID), unix.LOCK_EX)
	if err != nil {
		return nil, classify(err)
	}
	defer lock.release()
	// Read again under the lock: it may have grown or gone meanwhile.
	record, err := p.recordOnDisk(request.VolumeID)
	if err != nil {
		return nil, err
	}
	device, err := p.openLoop(ctx, record, request)
	if err != nil {
		return nil, fmt.Errorf("open the device of volume %s: %w", record.ID, classify(err))
	}
	return device, nil
}

func (p *Pool) openLoop(
	ctx context.Context, record volumeRecord, request backend.DeviceRequest,
) (*backend.Device, error) {
	data, err := p.openDataOf(record, request.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { _ = data.Close() }()
	loop, err := p.attachedLoop(data, request)
	if err != nil {
		return nil, err
	}
	if loop == nil {
		loop, err = p.attach(ctx, data, record, request)
	} else {
		err = p.refreshLoop(loop, record, request.ReadOnly)
	}
	if err != nil {
		return nil, err
	}
	if err := p.points.Hit("local/device/attached"); err != nil {
		return nil, errors.Join(err, loop.Close())
	}
	p.warnBuffered(record.ID, *loop)
	return deviceOf(loop, record), nil
}

// openDataOf opens the data file and checks that nothing of it is missing.
func (p *Pool) openDataOf(record volumeRecord, readOnly bool) (*os.File, error) {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	data, err := p.openData(volumePath(record.ID), flags)
	if err != nil {
		return nil, err
	}
	stat, err := statOf(data)
	if err == nil && stat.Size < record.Size {
		err = fmt.Errorf("%w: the data file has %d bytes of %d", backend.ErrDataLoss, stat.Size, record.Size)
	}
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	return data, nil
}

// attachedLoop opens the volume's loop device, if it has one.
func (p *Pool) attachedLoop(data *os.File, request backend.DeviceRequest) (*blockdev.Loop, error) {
	loops, err := p.loops.Of(data)
	if err != nil {
		return nil, err
	}
	for i := range loops {
		loop := &loops[i]
		err := loop.Open()
		if errors.Is(err, backend.ErrNotFound) {
			continue // it went away with its last user
		}
		if err != nil {
			return nil, err
		}
		if request.Keep && loop.AutoClear {
			if err := setAutoClear(loop, false); err != nil {
				return nil, errors.Join(err, loop.Close())
			}
		}
		return loop, nil
	}
	return nil, nil
}

func (p *Pool) attach(
	ctx context.Context, data *os.File, record volumeRecord, request backend.DeviceRequest,
) (*blockdev.Loop, error) {
	return blockdev.AttachLoop(ctx, blockdev.LoopConfig{
		File: data, Path: filepath.Join(p.options.Pool, volumePath(record.ID), dataFile),
		ReadOnly: request.ReadOnly, AutoClear: !request.Keep, DirectIO: true,
		SectorSize: record.SectorSize, Discard: p.discards(record) && !request.ReadOnly,
	})
}

// refreshLoop brings a device that was there before in line with the record.
func (p *Pool) refreshLoop(loop *blockdev.Loop, record volumeRecord, readOnly bool) error {
	err := p.matchLoop(loop, record)
	if err == nil {
		err = loop.SetReadOnly(readOnly)
	}
	if err != nil {
		return errors.Join(err, loop.Close())
	}
	return nil
}

func (p *Pool) matchLoop(loop *blockdev.Loop, record volumeRecord) error {
	if loop.Size < record.Size {
		if _, err := loop.SetCapacity(); err != nil {
			return err
		}
	}
	if !p.discards(record) {
		return loop.SetDiscard(false)
	}
	return nil
}

// setAutoClear turns the flag on or off on an open device (loop(4), LOOP_SET_STATUS).
func setAutoClear(loop *blockdev.Loop, on bool) error {
	device, err := os.OpenFile(loop.Path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	info, err := unix.IoctlLoopGetStatus64(descriptor(device))
	if err != nil {
		return fmt.Errorf("read status of %s: %w", loop.Path, err)
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	if on {
		info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	if err := unix.IoctlLoopSetStatus64(descriptor(device), info); err != nil {
		return fmt.Errorf("keep %s: %w", loop.Path, err)
	}
	loop.AutoClear = on
	return nil
}

func deviceOf(loop *blockdev.Loop, record volumeRecord) *backend.Device {
	return &backend.Device{
		Path: loop.Path, Number: loop.Number, Size: loop.Size, SectorSize: loop.SectorSize,
		ReadOnly: loop.ReadOnly, Discard: loop.Discard && !record.thick(), Close: loop.Close,
	}
}

// warnBuffered logs once for each volume that direct I/O was refused; health
// reports it as long as it lasts.
func (p *Pool) warnBuffered(id string, loop blockdev.Loop) {
	if loop.DirectIO {
		p.warned.Delete(id)
		return
	}
	if _, before := p.warned.LoadOrStore(id, true); !before {
		p.log.Warn("direct I/O was refused; data passes the page cache twice", "volume", id, "device", loop.Path)
	}
}

// loopsOfVolume lists the devices of a volume; none for an unknown one. It needs
// neither the record nor, when it cannot be opened, the data file: a volume whose
// pool failed must still be taken down.
func (p *Pool) loopsOfVolume(id string) ([]blockdev.Loop, error) {
	if !isVolumeID(id) {
		return nil, nil
	}
	if p.usable() == nil {
		data, err := p.openData(volumePath(id), os.O_RDONLY)
		if err == nil {
			defer func() { _ = data.Close() }()
			loops, err := p.loops.Of(data)
			if !errors.Is(err, backend.ErrUnavailable) {
				return loops, classify(err)
			}
		}
	}
	return p.loopsNamed(id)
}

// loopsNamed lists the devices of a volume by the path of its data file.
func (p *Pool) loopsNamed(id string) ([]blockdev.Loop, error) {
	paths, number, err := p.backingPaths(path.Join(volumePath(id), dataFile))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if loops, err := blockdev.LoopsNamed(number, path); err != nil || len(loops) > 0 {
			return loops, err
		}
	}
	return nil, nil
}

// backingPaths are the names that the kernel may give to a file of the pool: its
// path, or else its path below the mount through which it was opened, when that
// mount was of a container that ended. The second is ambiguous and counts only
// when no device has the first. number is the device of the filesystem.
func (p *Pool) backingPaths(name string) (paths []string, number uint64, err error) {
	full := filepath.Join(p.options.Pool, name)
	paths = []string{full}
	table, err := mount.Table()
	if err != nil {
		return nil, 0, err
	}
	if entry := mount.Covering(table, full); entry != nil {
		number = unix.Mkdev(uint32(entry.Major), uint32(entry.Minor))
		paths = append(paths, filepath.Join("/", strings.TrimPrefix(full, entry.Mountpoint)))
	}
	var stat unix.Stat_t
	if err := unix.Stat(p.options.Pool, &stat); err == nil {
		number = stat.Dev // on btrfs, each subvolume has another number
	}
	return paths, number, nil
}

// Devices lists the loop devices that have the volume's file.
func (p *Pool) Devices(_ context.Context, id string) ([]backend.Device, error) {
	loops, err := p.loopsOfVolume(id)
	if err != nil || len(loops) == 0 {
		return nil, err
	}
	record, err := p.recordOnDisk(id)
	if err != nil {
		p.log.Warn("the devices of a volume are listed without its record", "volume", id, "error", err)
	}
	devices := make([]backend.Device, len(loops))
	for i := range loops {
		devices[i] = *deviceOf(&loops[i], record)
		devices[i].Close = nil // the device was not opened
	}
	return devices, nil
}

// ResizeDevice makes the volume's devices as large as its file.
func (p *Pool) ResizeDevice(_ context.Context, id string) (int64, error) {
	loops, err := p.loopsOfVolume(id)
	if err != nil {
		return 0, err
	}
	var size int64
	for i := range loops {
		now, err := loops[i].SetCapacity()
		if errors.Is(err, backend.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("resize the device of volume %s: %w", id, classify(err))
		}
		size = max(size, now)
	}
	return size, nil
}

// CloseDevice detaches the volume's devices. ErrInUse when something still has
// one open. It works on a pool that failed.
func (p *Pool) CloseDevice(ctx context.Context, id string) error {
	loops, err := p.loopsOfVolume(id)
	if err != nil || len(loops) == 0 {
		return err
	}
	lock, err := p.lockForClose(ctx, id)
	if err != nil {
		return classify(err)
	}
	defer lock.release()
	if loops, err = p.loopsOfVolume(id); err != nil {
		return err
	}
	var failed []error
	for i := range loops {
		if err := loops[i].Detach(); err != nil && !errors.Is(err, backend.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("close the device of volume %s: %w", id, err)
	}
	return nil
}

// lockForClose locks a volume whose device is closed. It returns nil for one
// whose directory cannot be locked: no other operation can lock it either.
func (p *Pool) lockForClose(ctx context.Context, id string) (*entryLock, error) {
	if !p.phase.opened.Load() {
		return nil, nil
	}
	lock, err := p.awaitLock(ctx, volumePath(id), unix.LOCK_EX)
	if err == nil || errors.Is(err, backend.ErrBusy) || ctx.Err() != nil {
		return lock, err
	}
	p.log.Warn("a device is closed without the lock of its volume", "volume", id, "error", err)
	return nil, nil
}
