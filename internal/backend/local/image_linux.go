package local

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// image is a pool image while it is brought to the pool directory. The file has
// its final name only once it is a complete filesystem: a crash's remains under the
// temporary name are removed, and a file with the final name is never formatted.
type image struct {
	*Pool
	path      string // absolute
	directory string // the pool's
	root      *os.Root
	name      string // of the file below root
}

// mountImage makes the image if there is none, mounts it at the pool directory
// and grows it if it is to be larger. All of it is observed first, so that every
// start ends in the same state.
func (p *Pool) mountImage(ctx context.Context, directory string) error {
	path, err := filepath.Abs(p.options.PoolImage.Path)
	if err != nil {
		return err
	}
	if path == directory || strings.HasPrefix(path, directory+string(filepath.Separator)) {
		return fmt.Errorf("%w: the image cannot lie inside the pool that it contains", backend.ErrInvalid)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	m := &image{Pool: p, path: path, directory: directory, root: root, name: filepath.Base(path)}
	lock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock(lock)
	return m.bring(ctx)
}

// lock makes two processes that start at once run one after the other.
func (m *image) lock(ctx context.Context) (*os.File, error) {
	file, err := m.root.OpenFile(m.name+".lock", os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := awaitFlock(ctx, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func awaitFlock(ctx context.Context, file *os.File) error {
	for {
		err := tryFlock(file, unix.LOCK_EX)
		if !errors.Is(err, backend.ErrBusy) {
			return err
		}
		if err := concurrency.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (m *image) bring(ctx context.Context) error {
	file, err := m.root.OpenFile(m.name, os.O_RDWR, 0)
	if errors.Is(err, iofs.ErrNotExist) {
		if err = m.make(ctx); err == nil {
			file, err = m.root.OpenFile(m.name, os.O_RDWR, 0)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	mounted, err := m.awaitIdle(ctx, file)
	if err != nil {
		return err
	}
	if !mounted {
		if err := m.check(ctx, file); err != nil {
			return err
		}
	}
	if err := m.enlarge(ctx, file); err != nil {
		return err
	}
	if !mounted {
		if err := m.mount(ctx, file); err != nil {
			return err
		}
	}
	return m.fill(file)
}

// make builds the image under a temporary name. All of its space is allocated:
// a pool that promises what its image cannot get would lose writes.
func (m *image) make(ctx context.Context) error {
	size := m.options.PoolImage.Size / allocationUnit * allocationUnit
	if size < minimumFor(fs.XFS) {
		return fmt.Errorf("%w: the image does not exist yet and its size is given as %d bytes; give at least %d",
			backend.ErrInvalid, m.options.PoolImage.Size, minimumFor(fs.XFS))
	}
	m.log.Info("making a pool image", "image", m.path, "bytes", size)
	temp := m.name + durable.TempSuffix
	err := m.build(ctx, temp, size)
	if err == nil {
		err = m.points.Hit("local/image/made")
	}
	if err == nil {
		err = durable.Rename(m.root, temp, m.name)
	}
	if err != nil {
		return errors.Join(err, absentIsFine(m.root.Remove(temp)))
	}
	return m.points.Hit("local/image/named")
}

func absentIsFine(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}

func (m *image) build(ctx context.Context, temp string, size int64) error {
	if err := absentIsFine(m.root.Remove(temp)); err != nil {
		return err
	}
	file, err := m.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := m.reserve(ctx, file, size); err != nil {
		return err
	}
	if err := file.Truncate(size); err != nil {
		return err
	}
	if err := m.points.Hit("local/image/allocated"); err != nil {
		return err
	}
	loop, err := m.attach(ctx, file, temp)
	if err != nil {
		return err
	}
	device := backend.Device{Path: loop.Path, Number: loop.Number, Size: loop.Size, SectorSize: loop.SectorSize}
	err = fs.Make(ctx, m.options.Runner, fs.XFS, device, "holdfast")
	return errors.Join(err, loop.Close(), file.Sync())
}

// attach gives the file a loop device that goes away with its last user. Its
// sectors are as large as they can be: see defaultSectorSize.
func (m *image) attach(ctx context.Context, file *os.File, name string) (*blockdev.Loop, error) {
	return blockdev.AttachLoop(ctx, blockdev.LoopConfig{
		File: file, Path: filepath.Join(filepath.Dir(m.path), name),
		AutoClear: true, DirectIO: true, SectorSize: defaultSectorSize,
	})
}

// enlarge grows the file to the desired size, in one step after its blocks are
// there. A smaller size changes nothing.
func (m *image) enlarge(ctx context.Context, file *os.File) error {
	stat, err := statOf(file)
	if err != nil {
		return err
	}
	size := m.options.PoolImage.Size / allocationUnit * allocationUnit
	if stat.Size >= size {
		return nil
	}
	m.log.Info("enlarging the pool image", "image", m.path, "from", stat.Size, "to", size)
	if err := m.reserve(ctx, file, size); err != nil {
		return errors.Join(err, file.Truncate(stat.Size))
	}
	if err := errors.Join(file.Truncate(size), file.Sync()); err != nil {
		return err
	}
	return m.points.Hit("local/image/enlarged")
}

// detachPatience is how long a device of the image may stay after it was unmounted: udev
// and programs that read signatures open devices for a moment.
const detachPatience = 5 * time.Second

// awaitIdle is isMounted, after a device that was unmounted had time to go.
func (m *image) awaitIdle(ctx context.Context, file *os.File) (mounted bool, err error) {
	for deadline := time.Now().Add(detachPatience); ; {
		mounted, err = m.isMounted(file)
		if !errors.Is(err, errAttached) || time.Now().After(deadline) {
			return mounted, err
		}
		if err := concurrency.Sleep(ctx, 10*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// errAttached is that of an image with a device that is mounted nowhere.
var errAttached = fmt.Errorf("%w: the image is attached", backend.ErrInUse)

// isMounted reports whether the image is at the pool directory already.
// ErrInUse when it is anywhere else, ErrPrecondition when something else is
// there.
func (m *image) isMounted(file *os.File) (bool, error) {
	table, err := mount.Table()
	if err != nil {
		return false, err
	}
	loops, err := blockdev.LoopsOf(file)
	if err != nil {
		return false, err
	}
	elsewhere := ""
	for _, loop := range loops {
		for _, at := range mount.OfDevice(table, loop.Number) {
			if at.Mountpoint == m.directory {
				return true, nil
			}
			elsewhere = at.Mountpoint
		}
	}
	switch {
	case elsewhere != "":
		return false, fmt.Errorf("%w: the image is mounted at %s and not at %s; unmount it there", backend.ErrInUse, elsewhere, m.directory)
	case len(loops) > 0:
		return false, fmt.Errorf("%w as %s but not mounted at %s; unmount and detach it", errAttached, loops[0].Path, m.directory)
	}
	return false, m.checkEmpty(table)
}

func (m *image) checkEmpty(table []*mountinfo.Info) error {
	if slices.ContainsFunc(table, func(at *mountinfo.Info) bool { return at.Mountpoint == m.directory }) {
		return fmt.Errorf("%w: another filesystem is mounted at %s; unmount it", backend.ErrPrecondition, m.directory)
	}
	names, err := os.ReadDir(m.directory)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%w: %s is not empty and mounting the image would hide %q; move it away or do without the image",
			backend.ErrPrecondition, m.directory, names[0].Name())
	}
	return nil
}

// check makes sure that the file is a pool image.
func (m *image) check(ctx context.Context, file *os.File) error {
	stat, err := statOf(file)
	if err != nil {
		return err
	}
	content, err := blockdev.Probe(ctx, file, stat.Size, nil)
	if err != nil {
		return err
	}
	if content.Kind != blockdev.Filesystem || content.Type != fs.XFS {
		return fmt.Errorf("%w: the file is not an xfs filesystem (%s %s); it is left as it is: give another path or "+
			"remove it", backend.ErrPrecondition, content.Kind, content.Type)
	}
	return nil
}

func (m *image) mount(ctx context.Context, file *os.File) error {
	loop, err := m.attach(ctx, file, m.name)
	if err != nil {
		return err
	}
	// The mount keeps the device from here on; without one the device goes away.
	defer func() { _ = loop.Close() }()
	if !loop.DirectIO {
		m.log.Warn("direct I/O was refused for the pool image; data passes the page cache twice", "image", m.path)
	}
	if err := m.points.Hit("local/image/attached"); err != nil {
		return err
	}
	if err := unix.Mount(loop.Path, m.directory, fs.XFS, unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w; see the kernel log", loop.Path, m.directory, err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(m.directory, &stat); err != nil {
		return err
	}
	if uint64(stat.Dev) != loop.Number {
		return fmt.Errorf("%w: %s is not on %s after the mount; something was mounted over it",
			backend.ErrUnavailable, m.directory, loop.Path)
	}
	return m.points.Hit("local/image/mounted")
}

// fill makes the device as large as the file and the filesystem as large as
// the device.
func (m *image) fill(file *os.File) error {
	loops, err := blockdev.LoopsOf(file)
	if err != nil {
		return err
	}
	top, err := os.Open(m.directory)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	for i := range loops {
		size, err := loops[i].SetCapacity()
		if err != nil {
			return err
		}
		if err := fs.Grow(top, fs.XFS, size); err != nil {
			return err
		}
	}
	return nil
}
