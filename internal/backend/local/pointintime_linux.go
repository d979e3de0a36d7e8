package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
	"github.com/holdfast-csi/holdfast/internal/step"
)

// fileCopy is one data file that gets the content of another.
type fileCopy struct {
	source *lockedSource
	target *os.File
	begun  *copyState            // of an interrupted copy
	save   func(copyState) error // makes progress durable
	users  users
}

// users are the current users of a volume on this machine.
type users struct {
	loops  []blockdev.Loop
	mounts []*os.File // one open directory for each mounted filesystem
}

// copyPointInTime copies to all targets the content of their sources at one instant.
// The intents were recorded before: filesystems that a crash leaves frozen are
// thawed at the next start.
func (p *Pool) copyPointInTime(ctx context.Context, copies []fileCopy) (err error) {
	ctx, end := step.Begin(ctx, "copy")
	defer func() { end(err) }()
	defer func() {
		for _, c := range copies {
			c.users.close()
		}
	}()
	for i := range copies {
		if !copies[i].source.live {
			continue
		}
		found, err := p.findUsers(ctx, copies[i].source.data)
		if err != nil {
			return err
		}
		copies[i].users = found
	}
	if p.reflink.Load() {
		return p.cloneFiles(ctx, copies)
	}
	return p.copyFiles(ctx, copies)
}

// cloneFiles lets the targets share the blocks of the sources. Cloning one file
// is atomic with respect to writes to it; freezing adds that the content is a
// clean filesystem, and that all files are of one instant.
func (p *Pool) cloneFiles(ctx context.Context, copies []fileCopy) error {
	if err := p.flushUsers(ctx, copies); err != nil {
		return err
	}
	thaw, err := p.freeze(copies)
	if err == nil {
		err = p.points.Hit("local/copy/frozen")
	}
	for i := 0; err == nil && i < len(copies); i++ {
		if err = ctx.Err(); err == nil {
			err = clone(copies[i].target, copies[i].source.data)
		}
		if err == nil {
			err = p.points.Hit("local/copy/cloned")
		}
	}
	return errors.Join(err, thaw())
}

// flushUsers writes dirty pages before the freeze, which keeps the freeze short.
func (p *Pool) flushUsers(ctx context.Context, copies []fileCopy) error {
	for _, c := range copies {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.users.sync(); err != nil {
			return err
		}
		if err := c.source.data.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", c.source.id, err)
		}
	}
	return p.points.Hit("local/copy/synced")
}

// copyFiles copies: idle sources without a bound, mounted ones while they are
// frozen, within the freeze limit.
func (p *Pool) copyFiles(ctx context.Context, copies []fileCopy) error {
	var frozen, idle []fileCopy
	for _, c := range copies {
		switch {
		case len(c.users.loops) == 0:
			idle = append(idle, c)
		case len(c.users.mounts) > 0:
			frozen = append(frozen, c)
		default:
			return fmt.Errorf("%w: volume %s is in use as a raw block device (%s) and the pool's filesystem cannot clone "+
				"files; stop the workload for the snapshot, or keep the pool on xfs or btrfs (see --pool-image)",
				backend.ErrPrecondition, c.source.id, c.users.loops[0].Path)
		}
	}
	// Idle sources cannot change meanwhile: they are locked.
	for _, c := range idle {
		if err := p.copyIdle(ctx, c); err != nil {
			return err
		}
	}
	return p.copyFrozen(ctx, frozen)
}

func (p *Pool) copyFrozen(ctx context.Context, copies []fileCopy) error {
	if len(copies) == 0 {
		return nil
	}
	if err := p.flushUsers(ctx, copies); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, p.options.FreezeLimit)
	defer cancel()
	thaw, err := p.freeze(copies)
	if err == nil {
		err = p.points.Hit("local/copy/frozen")
	}
	for i := 0; err == nil && i < len(copies); i++ {
		err = p.copyWhole(bounded, copies[i])
	}
	late := bounded.Err() != nil && ctx.Err() == nil
	if err = errors.Join(err, thaw()); err != nil && late && !errors.Is(err, errStillFrozen) {
		return fmt.Errorf("%w: copying took longer than the %s that a mounted filesystem may be frozen; stop the workload "+
			"for the snapshot, or keep the pool on xfs or btrfs (see --pool-image): %s",
			backend.ErrPrecondition, p.options.FreezeLimit, err.Error()) // in words only: its class would ask for a repetition
	}
	return err
}

// freeze stops writes to all mounted sources. The returned function thaws them
// and must be called on every path; it fails when the freeze limit was hit
// before, at which the filesystems were thawed and the copy is not of one instant.
func (p *Pool) freeze(copies []fileCopy) (thaw func() error, err error) {
	f := &frozen{pool: p}
	for _, c := range copies {
		for _, dir := range c.users.mounts {
			if f.timer == nil {
				f.timer = time.AfterFunc(p.options.FreezeLimit, f.expire)
			}
			if err := f.add(c.source.id, dir); err != nil {
				return f.thaw, err
			}
		}
	}
	return f.thaw, nil
}

// thawUsers ends a freeze that a crash may have left. ErrUnavailable while a loop
// device has the volume's file and no mount of it can be opened: a filesystem that
// was unmounted while it was frozen keeps its device, and its next mount is frozen.
func (p *Pool) thawUsers(ctx context.Context, id string, data *os.File) error {
	found, err := p.findUsers(ctx, data)
	defer found.close()
	for _, dir := range found.mounts {
		err = errors.Join(err, fs.Thaw(dir))
	}
	if err == nil && len(found.mounts) < len(found.loops) {
		return fmt.Errorf("%w: volume %s may be frozen, %s has its file and no mount of it can be opened; if it does not "+
			"detach by itself, mount it or unmount what covers its mount point; the driver retries to thaw it",
			backend.ErrUnavailable, id, found.loops[0].Path)
	}
	return err
}

func (p *Pool) findUsers(ctx context.Context, data *os.File) (users, error) {
	var found users
	loops, err := p.loopsInUse(ctx, data)
	if err != nil || len(loops) == 0 {
		return found, err
	}
	found.loops = loops
	table, err := mount.Table()
	if err != nil {
		return found, err
	}
	for _, loop := range loops {
		for _, m := range mount.OfDevice(table, loop.Number) {
			dir, err := openMount(m.Mountpoint, m.ID)
			if err != nil {
				continue // covered by another mount, or gone: try the next one
			}
			found.mounts = append(found.mounts, dir)
			break // one is enough: freezing is per filesystem
		}
	}
	return found, nil
}

// openMount opens the root of the very mount that the table named. A path could
// lead elsewhere by now; freezing another filesystem must be impossible.
func openMount(path string, id int) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var stat unix.Statx_t
	err = unix.Statx(descriptor(dir), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat)
	if err == nil && stat.Mnt_id != uint64(id) {
		err = fmt.Errorf("%s is on mount %d, not %d", path, stat.Mnt_id, id)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// sync writes out the dirty pages of the users. A raw block user's page cache
// belongs to the device.
func (u users) sync() error {
	for _, dir := range u.mounts {
		if err := fs.SyncFS(dir); err != nil {
			return err
		}
	}
	for i := range u.loops {
		if err := syncDevice(u.loops[i]); err != nil {
			return err
		}
	}
	return nil
}

func syncDevice(loop blockdev.Loop) error {
	if err := loop.Open(); errors.Is(err, backend.ErrNotFound) {
		return nil // detached meanwhile, which wrote everything out
	} else if err != nil {
		return err
	}
	device, err := os.Open(loop.Path) // read-only now, it may have dirty pages from before
	if err != nil {
		return errors.Join(err, loop.Close())
	}
	return errors.Join(device.Sync(), device.Close(), loop.Close())
}

func (u users) close() {
	for _, dir := range u.mounts {
		_ = dir.Close()
	}
}
