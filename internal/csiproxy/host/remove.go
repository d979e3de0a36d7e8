package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	// maxDepth is the largest number of nested directories in a tree that is removed.
	// NTFS has no limit; each level needs a handle.
	maxDepth = 1024
	// refills bounds how many times a directory is emptied because it has entries
	// again, or entries whose removal is pending; refillPause is the time between.
	refills     = 5
	refillPause = 20 * time.Millisecond
	// pendingLimit is how long an entry that has been removed may keep its name
	// because another program, such as a virus scanner, has it open.
	pendingLimit = 2 * time.Second
)

// Rmdir implements api.Filesystem. At a mounted folder it unmounts the volume first, with
// or without force, and then removes the empty directory, since drivers unstage that
// way. The files of the volume stay.
func (f filesystem) Rmdir(ctx context.Context, text string, force bool) error {
	path, err := f.rules.Target("path", text)
	if err != nil {
		return err
	}
	return f.alone(ctx, path, func(w *walk, ctx context.Context) error {
		err := w.removeLast(ctx, force)
		if force && isGone(err) {
			return nil
		}
		return err
	})
}

// alone is change with the path locked against mounts: a removal must not unlink a
// mount that was made and reported after the removal began.
func (f filesystem) alone(ctx context.Context, path paths.Path, do func(*walk, context.Context) error) error {
	unlock, err := f.tasks.queue.Lock(ctx, pathKey(path))
	if err != nil {
		return err
	}
	_, err = belowLocked(ctx, f.Host, path, unlock, func(w *walk, ctx context.Context) (struct{}, error) {
		return struct{}{}, do(w, ctx)
	})
	return err
}

func (w *walk) removeLast(ctx context.Context, force bool) error {
	name, err := w.toParent(ctx)
	if err != nil {
		return err
	}
	info, err := w.stat(name)
	if err == nil {
		err = w.removeEntry(ctx, info, name, force)
	}
	if err != nil && !isErrno(err, win32.ErrorDeletePending) {
		return err
	}
	return w.mustBeGone(ctx, name)
}

func (w *walk) removeEntry(ctx context.Context, info win32.FileInfo, name string, force bool) error {
	r := &remover{host: w.host, ctx: ctx}
	switch {
	case force || info.IsReparse():
		return r.remove(w.dir, info, name, w.child(name), 0)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is a file, not a directory; a file is removed with force only",
			backend.ErrPrecondition, w.child(name))
	}
	return r.removeOne(w.dir, name, w.child(name))
}

// mustBeGone checks that a removed entry does not exist. Windows may answer success
// while another program keeps the entry open, and wine does so for links.
func (w *walk) mustBeGone(ctx context.Context, name string) error {
	var err error
	_, ended := poll(ctx, pendingLimit, func() (bool, error) {
		_, err = w.dir.Stat(name)
		return !isErrno(err, win32.ErrorDeletePending), nil
	})
	switch {
	case ended != nil:
		return fmt.Errorf("remove %s: %w: %w", w.child(name), ended, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		return fmt.Errorf("remove %s: Windows answered success, but it still exists", w.child(name))
	case isErrno(err, win32.ErrorDeletePending):
		return failedAs(backend.ErrInUse, err, "remove %s: another program still has it open", w.child(name))
	}
	return failed(err, "inspect %s after its removal", w.child(name))
}

// RmdirContents implements api.Filesystem. A link or mounted folder is not
// emptied: its content is elsewhere.
func (f filesystem) RmdirContents(ctx context.Context, text string) error {
	path, err := f.rules.Target("path", text)
	if err != nil {
		return err
	}
	return f.alone(ctx, path, (*walk).emptyLast)
}

func (w *walk) emptyLast(ctx context.Context) error {
	name, err := w.toParent(ctx)
	if err != nil {
		return err
	}
	dir, err := w.dir.Open(name)
	switch {
	case errors.Is(err, win32.ErrorStoppedOnSymlink):
		return fmt.Errorf("%w: %s is a link or a mounted folder, whose target is not emptied; give a directory",
			backend.ErrPrecondition, w.child(name))
	case err != nil:
		return failed(err, "open the directory %s", w.child(name))
	}
	defer func() { _ = dir.Close() }()
	r := &remover{host: w.host, ctx: ctx}
	return r.empty(dir, w.child(name), 1)
}

// remover removes a tree. It opens each directory by its name in the handle of the one
// above, which never opens a reparse point, and empties it through its own handle. So
// an entry that is replaced meanwhile cannot lead it out of the tree. It keeps no state:
// after a crash, the repeated call continues.
type remover struct {
	host *Host
	ctx  context.Context
	// pending is set when a removed entry is still open in another program.
	pending bool
	// busyUntil ends the wait for entries that other programs have open; zero before the
	// first.
	busyUntil time.Time
}

// remove removes an entry of any kind. at is its path, for errors and for mounted
// folders. A missing entry is not an error.
func (r *remover) remove(dir win32.Directory, info win32.FileInfo, name, at string, depth int) error {
	if err := r.ctx.Err(); err != nil {
		return fmt.Errorf("remove %s: %w", at, context.Cause(r.ctx))
	}
	if info.IsReparse() {
		return r.unlink(dir, name, at)
	}
	if !info.IsDir() {
		return r.removeOne(dir, name, at)
	}
	if depth == maxDepth {
		return fmt.Errorf("%w: remove %s: it has more than %d nested directories; remove some by hand",
			backend.ErrPrecondition, at, maxDepth)
	}
	deadline := time.Now().Add(pendingLimit)
	for try := 0; try < refills || r.pending && time.Now().Before(deadline); try++ {
		again, err := r.removeTree(dir, name, at, depth)
		if !again {
			return err
		}
		if err := concurrency.Sleep(r.ctx, refillPause); err != nil {
			return fmt.Errorf("remove %s: %w", at, err)
		}
	}
	return fmt.Errorf("%w: remove %s: new entries appear in it as fast as they are removed, or removed ones are still open: %w; "+
		"stop the programs that use it",
		backend.ErrInUse, at, win32.ErrorDirNotEmpty)
}

// removeTree empties and removes a directory. again reports that it had entries again
// when it was to be removed.
func (r *remover) removeTree(dir win32.Directory, name, at string, depth int) (again bool, err error) {
	child, err := dir.Open(name)
	switch {
	case err == nil:
		err = r.empty(child, at, depth+1)
		_ = child.Close() // a directory that is open cannot be removed
	case errors.Is(err, win32.ErrorStoppedOnSymlink):
		return false, r.unlink(dir, name, at)
	case isErrno(err, win32.ErrorDirectory): // now a file
		err = nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case isErrno(err, win32.ErrorDeletePending):
		r.pending = true
		return false, nil
	default:
		err = failed(err, "open the directory %s", at)
	}
	if err == nil {
		err = r.removeOne(dir, name, at)
		again = isErrno(err, win32.ErrorDirNotEmpty)
	}
	return again, err
}

func (r *remover) empty(dir win32.Directory, at string, depth int) error {
	entries, err := dir.List()
	if err != nil {
		return failed(err, "list the directory %s", at)
	}
	for _, entry := range entries {
		if err := r.remove(dir, entry, entry.Name, at+`\`+entry.Name, depth); err != nil {
			return err
		}
	}
	return nil
}

// removeOne removes a file, an empty directory or a link. It waits for an entry that
// another program has open without permitting its removal: pendingLimit for all entries
// of the operation together.
func (r *remover) removeOne(dir win32.Directory, name, at string) error {
	err := dir.Remove(name)
	if isErrno(err, win32.ErrorSharingViolation) {
		if r.busyUntil.IsZero() {
			r.busyUntil = time.Now().Add(pendingLimit)
		}
		_, ended := poll(r.ctx, time.Until(r.busyUntil), func() (bool, error) {
			err = dir.Remove(name)
			return !isErrno(err, win32.ErrorSharingViolation), nil
		})
		if ended != nil {
			return fmt.Errorf("remove %s: %w: %w", at, ended, err)
		}
	}
	if isErrno(err, win32.ErrorDeletePending) {
		r.pending = true
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return failed(err, "remove %s", at)
}

// unlink removes a reparse point, not its target. The mount manager unmounts a volume
// from its folder; otherwise it would still list the path. A mount point that the
// manager does not know, such as a planted one, is removed like any other link.
func (r *remover) unlink(dir win32.Directory, name, at string) error {
	link, err := readReparse(dir, name)
	if err == nil && link.IsVolume() {
		if err := r.host.unmountFolder(r.ctx, link.Target(), at); err != nil {
			return err
		}
	}
	return r.removeOne(dir, name, at)
}

// unmountFolder unmounts the volume at a folder. It flushes the volume first: the next
// step of a driver may be to detach the disk. A volume that no longer exists has nothing
// to flush.
func (h *Host) unmountFolder(ctx context.Context, target, at string) error {
	if volume, err := win32.ParseVolumeName(target); err == nil {
		if err := h.flushBefore(ctx, volume, at); err != nil {
			return err
		}
	}
	if err := h.machine.Volumes.DeleteMountPoint(at + `\`); err != nil {
		h.logger.WarnContext(ctx, "a mount point is removed as a link, because Windows does not unmount its volume",
			"path", at, "error", err)
	}
	return nil
}

func (h *Host) flushBefore(ctx context.Context, volume, at string) error {
	device, err := h.machine.Volumes.Open(volume, win32.ReadWrite)
	if err != nil {
		h.logger.InfoContext(ctx, "a volume that cannot be opened is unmounted without a flush",
			"path", at, "volume", volume, "error", err)
		return nil
	}
	defer func() { _ = device.Close() }()
	return failed(flush(device), "write the cache of the volume %s at %s before it is unmounted", volume, at)
}
