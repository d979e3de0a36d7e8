package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const copyTries = 5

// CreateVolume makes a sparse file of size GiB, with the data of a snapshot or
// of another volume if one is given.
func (d *Disks) CreateVolume(id string, size int32, from world.DataSource) error {
	source := ""
	switch {
	case from.SnapshotID != "":
		source = snapshotFile(from.SnapshotID)
	case from.VolumeID != "":
		source = volumeFile(from.VolumeID)
	}
	return d.make(id, volumeFile(id), source, size)
}

// CreateSnapshot copies the present data of the volume.
func (d *Disks) CreateSnapshot(id, volumeID string) error {
	return d.make(id, snapshotFile(id), volumeFile(volumeID), 0)
}

// CopySnapshot makes a snapshot with the data of another one.
func (d *Disks) CopySnapshot(id, sourceID string) error {
	return d.make(id, snapshotFile(id), snapshotFile(sourceID), 0)
}

// make makes a file as a copy of source, if any, and at least size GiB large.
func (d *Disks) make(id, name, source string, size int32) (err error) {
	if err := check(id); err != nil {
		return err
	}
	file, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", id, err)
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = fmt.Errorf("make %s: %w", id, errors.Join(err, d.root.Remove(name)))
		}
	}()
	if source != "" {
		if err := d.copyFrom(file, source); err != nil {
			return err
		}
	}
	return growFile(file, size)
}

func (d *Disks) copyFrom(target *os.File, source string) error {
	from, err := d.root.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if err := unix.IoctlFileClone(int(target.Fd()), int(from.Fd())); err == nil {
		return nil
	}
	// Not all filesystems share blocks. A copy shows one instant only if the file
	// was not written to while it was copied.
	for range copyTries {
		before, err := written(from)
		if err != nil {
			return err
		}
		if err := copySparse(target, from); err != nil {
			return err
		}
		after, err := written(from)
		if err != nil || before == after {
			return err
		}
	}
	return fmt.Errorf("%s was written to %d times while it was copied; use a filesystem that shares blocks, such as xfs or btrfs", source, copyTries)
}

// stamps change when a file is written to.
type stamps struct {
	modified, changed unix.Timespec
	size              int64
}

func written(file *os.File) (stamps, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &s); err != nil {
		return stamps{}, fmt.Errorf("stat %s: %w", file.Name(), err)
	}
	return stamps{s.Mtim, s.Ctim, s.Size}, nil
}

// copySparse copies the data and leaves the holes (lseek(2), SEEK_DATA).
func copySparse(target, source *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	// Data that an earlier attempt wrote may be a hole now.
	if err := errors.Join(target.Truncate(0), target.Truncate(info.Size())); err != nil {
		return err
	}
	for from := int64(0); from < info.Size(); {
		begin, err := source.Seek(from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := source.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(target, begin),
			io.NewSectionReader(source, begin, end-begin)); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// DeleteVolume removes the data of a volume that is not attached.
func (d *Disks) DeleteVolume(id string) error {
	if err := check(id); err != nil {
		return err
	}
	return d.remove(volumeFile(id))
}

// DeleteSnapshot removes the data of a snapshot.
func (d *Disks) DeleteSnapshot(id string) error {
	if err := check(id); err != nil {
		return err
	}
	return d.remove(snapshotFile(id))
}

func (d *Disks) remove(name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Prune removes the data of other volumes and snapshots.
func (d *Disks) Prune(volumes, snapshots []string) error {
	return errors.Join(d.prune(volumesDir, volumes), d.prune(snapshotsDir, snapshots))
}

func (d *Disks) prune(dir string, known []string) error {
	entries, err := fs.ReadDir(d.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id, isImage := strings.CutSuffix(entry.Name(), ".img")
		if !isImage || check(id) != nil || slices.Contains(known, id) || slices.Contains(d.intents, id) {
			continue
		}
		if err := d.remove(dir + "/" + entry.Name()); err != nil {
			return err
		}
	}
	return nil
}
