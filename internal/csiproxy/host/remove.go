package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	// maxDepth is how many directories lie in each other at most in a tree that is
	// removed. NTFS itself has no limit; each one costs a handle.
	maxDepth = 1024
	// refills is how often a directory is emptied again because something was put
	// into it, or was not quite gone yet, and refillPause the time between.
	refills     = 5
	refillPause = 20 * time.Millisecond
	// pendingLimit is how long an entry that has been removed may keep its name
	// because another program, such as a virus scanner, has it open.
	pendingLimit = 2 * time.Second
)

// Rmdir implements api.Filesystem. A mounted folder is taken off its volume first,
// with or without force, and then removed as the empty directory that it is:
// drivers unstage so. What is on the volume stays.
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

// alone is change while nothing is mounted at the path: a mount that has
// answered its caller is not unlinked by a removal that began before it.
func (f filesystem) alone(ctx context.Context, path paths.Path, do func(*walk, context.Context) error) error {
	release, err := f.tasks.enterAll(ctx, []string{pathKey(path)})
	if err != nil {
		return err
	}
	_, err = belowHolding(ctx, f.Host, path, release, func(w *walk, ctx context.Context) (struct{}, error) { return struct{}{}, do(w, ctx) })
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
		return fmt.Errorf("%w: %s is a file and no directory; a file is removed with force only", backend.ErrPrecondition, w.child(name))
	}
	return r.removeOne(w.dir, name, w.child(name))
}

// mustBeGone reads back what a removal did: Windows may say that it succeeded
// while another program keeps the entry open, and wine says so of links.
func (w *walk) mustBeGone(ctx context.Context, name string) error {
	var err error
	_, left := poll(ctx, pendingLimit, func() (bool, error) {
		_, err = w.attributes(name)
		return !isErrno(err, win32.ErrorDeletePending), nil
	})
	switch {
	case left != nil:
		return fmt.Errorf("remove %s: %w: %w", w.child(name), left, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		return fmt.Errorf("remove %s: Windows said that it did, and it is still there", w.child(name))
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
		return fmt.Errorf("%w: %s is a link or a mounted folder, which is not entered for removal; give a directory",
			backend.ErrPrecondition, w.child(name))
	case err != nil:
		return failed(err, "open the directory %s", w.child(name))
	}
	defer func() { _ = dir.Close() }()
	r := &remover{host: w.host, ctx: ctx}
	return r.empty(dir, w.child(name), 1)
}

// remover takes a tree away from within: each directory is opened by its name in
// the handle of the one above, which never opens a reparse point, and emptied
// through its own handle. Nothing that is swapped meanwhile leads it elsewhere.
// It keeps no state: repeated after an end at any call, it continues.
type remover struct {
	host *Host
	ctx  context.Context
	// pending is set when an entry was found that is removed and still open elsewhere.
	pending bool
	// busyUntil ends the wait for entries that are open elsewhere; zero before the first.
	busyUntil time.Time
}

// remove removes an entry of any kind. at is its path, for errors and for
// mounted folders. A missing entry is not an error.
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
		return fmt.Errorf("%w: remove %s: more than %d directories lie in each other; remove some by hand", backend.ErrPrecondition, at, maxDepth)
	}
	deadline := time.Now().Add(pendingLimit)
	for try := 0; try < refills || r.pending && time.Now().Before(deadline); try++ {
		again, err := r.removeTree(dir, name, at, depth)
		if !again {
			return err
		}
		if err := r.pause(); err != nil {
			return fmt.Errorf("remove %s: %w", at, err)
		}
	}
	return fmt.Errorf("%w: remove %s: it is filled again as fast as it is emptied, or what was in it is still open: %w; stop what works in it",
		backend.ErrInUse, at, win32.ErrorDirNotEmpty)
}

// removeTree empties and removes a directory; again means that it was not empty
// any more when it was to go.
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

// removeOne removes a file, an empty directory or a link. For one that another
// program has open without letting it be removed it waits, pendingLimit in all for
// all entries of the operation.
func (r *remover) removeOne(dir win32.Directory, name, at string) error {
	err := dir.Remove(name)
	if isErrno(err, win32.ErrorSharingViolation) {
		if r.busyUntil.IsZero() {
			r.busyUntil = time.Now().Add(pendingLimit)
		}
		_, left := poll(r.ctx, time.Until(r.busyUntil), func() (bool, error) {
			err = dir.Remove(name)
			return !isErrno(err, win32.ErrorSharingViolation), nil
		})
		if left != nil {
			return fmt.Errorf("remove %s: %w: %w", at, left, err)
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

// unlink removes a reparse point and nothing that it leads to. The mount manager
// unmounts a volume from its folder; otherwise it would still list the path. A mount
// point that the manager does not know, such as a planted one, is removed as any
// other link.
func (r *remover) unlink(dir win32.Directory, name, at string) error {
	link, err := readReparse(dir, name)
	if err == nil && link.IsVolume() {
		if err := r.host.takeOff(r.ctx, link.Target(), at); err != nil {
			return err
		}
	}
	return r.removeOne(dir, name, at)
}

// takeOff unmounts the volume at a folder. It flushes the volume first: the next
// step of a driver may be to detach the disk. A volume that is gone has nothing to
// flush.
func (h *Host) takeOff(ctx context.Context, target, at string) error {
	if volume, err := win32.ParseVolumeName(target); err == nil {
		if err := h.flushBefore(ctx, volume, at); err != nil {
			return err
		}
	}
	if err := h.machine.Volumes.DeleteMountPoint(at + `\`); err != nil {
		h.logger.WarnContext(ctx, "a mount point is removed as a link, because Windows does not take the volume off it", "path", at, "error", err)
	}
	return nil
}

func (h *Host) flushBefore(ctx context.Context, volume, at string) error {
	device, err := h.machine.Volumes.Open(volume, win32.ReadWrite)
	if err != nil {
		h.logger.InfoContext(ctx, "a volume that cannot be opened is taken off its folder without a flush",
			"path", at, "volume", volume, "error", err)
		return nil
	}
	defer func() { _ = device.Close() }()
	return failed(flush(device), "write the cache of the volume %s at %s before it is unmounted", volume, at)
}

func (r *remover) pause() error {
	select {
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-time.After(refillPause):
		return nil
	}
}
