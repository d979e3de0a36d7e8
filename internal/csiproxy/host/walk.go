package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// walk is a way down from a root, one handle at a time: each directory is opened
// by its name in the handle of the one above and held until the next is, so
// nothing that is renamed or replaced meanwhile leads elsewhere. That takes one call
// for each directory and no inspection before it: opening reports what it is.
type walk struct {
	host   *Host
	root   *root
	dir    win32.Directory
	own    bool     // dir is to be closed, as the root's is not
	at     string   // where dir is, from the root's own final path
	volume string   // the mounted volume that dir lies on; "" for the root's
	names  []string // below the root, that are still ahead
}

func (h *Host) walk(path paths.Path) (*walk, error) {
	r, err := h.rootOf(path)
	if err != nil {
		return nil, err
	}
	dir, err := r.use()
	if err != nil {
		return nil, err
	}
	return &walk{host: h, root: r, dir: dir, at: r.final, names: path.Components()}, nil
}

func (w *walk) close() {
	if w.own {
		_ = w.dir.Close()
	}
	w.root.release()
}

// child is the path of an entry, for calls of Windows that take no handle, and
// for errors.
func (w *walk) child(name string) string { return w.at + `\` + name }

// enter goes down into a directory.
func (w *walk) enter(name string) error {
	next, err := w.dir.Open(name)
	switch {
	case err == nil:
	case errors.Is(err, win32.ErrorStoppedOnSymlink):
		if next, err = w.openVolume(name); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s: %w", backend.ErrNotFound, w.child(name), err)
	case errors.Is(err, win32.ErrorDirectory):
		return fmt.Errorf("%w: %s is a file, so nothing is below it: %w", backend.ErrNotFound, w.child(name), err)
	default:
		return failed(err, "open the directory %s", w.child(name))
	}
	w.step(next, w.child(name))
	return nil
}

// enterAll goes down several levels: at once if nothing is in the way, which
// nearly always is so, else level by level to see what it is.
// The names that are still ahead come with the error.
func (w *walk) enterAll(ctx context.Context, names []string) (ahead []string, err error) {
	if below, ok := w.dir.(win32.Below); ok && len(names) > 1 {
		if next, err := below.OpenBelow(names); err == nil {
			w.step(next, w.child(strings.Join(names, `\`)))
			return nil, nil
		}
	}
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return names[i:], err
		}
		if err := w.enter(name); err != nil {
			return names[i:], err
		}
	}
	return nil, nil
}

// step makes next the directory that the walk is in.
func (w *walk) step(next win32.Directory, at string) {
	if w.own {
		_ = w.dir.Close()
	}
	w.dir, w.own, w.at = next, true, at
}

// toParent opens the directory that contains the last name, and returns that name.
func (w *walk) toParent(ctx context.Context) (string, error) {
	last := len(w.names) - 1
	if _, err := w.enterAll(ctx, w.names[:last]); err != nil {
		return "", err
	}
	return w.names[last], ctx.Err()
}

// glimpse returns what is at a path without opening the directories to it. known is
// false if that is impossible, as behind a mounted folder. For a missing entry the
// error is ErrorFileNotFound or ErrorPathNotFound. It accesses only the root's own
// volume, so it needs no goroutine of its own.
func (h *Host) glimpse(path paths.Path) (info win32.FileInfo, known bool, err error) {
	r, err := h.rootOf(path)
	if err != nil {
		return info, false, err
	}
	dir, err := r.use()
	if err != nil {
		return info, false, err
	}
	defer r.release()
	below, ok := dir.(win32.Below)
	if !ok {
		return info, false, nil
	}
	info, err = below.StatBelow(path.Components())
	return info, err == nil || errors.Is(err, fs.ErrNotExist), err
}

// attributes is Directory.Stat without the tag, which is not needed together with the
// reparse data.
func (w *walk) attributes(name string) (win32.FileInfo, error) {
	if below, ok := w.dir.(win32.Below); ok {
		return below.StatBelow([]string{name})
	}
	return w.dir.Stat(name)
}

// openVolume opens a mounted folder on the way, if it is one that this proxy may
// have made; every other reparse point is refused.
//
// A reparse point can be planted by any account that may write to a directory, with the
// name of any volume in it. Whether it was mounted by an administrator, as this
// proxy is, only Windows' mount manager knows, also after a restart: it names the
// path among those of the volume. A volume that is mounted anywhere outside the
// roots, as every one with a drive letter is, was not mounted by this proxy alone
// and is not entered. The path of the opened handle is compared last, so that a
// directory that has replaced the folder is not entered either.
func (w *walk) openVolume(name string) (win32.Directory, error) {
	at := w.child(name)
	link, err := readReparse(w.dir, name)
	if err != nil || !link.IsVolume() {
		return nil, refuseLink(at, "a link or another reparse point")
	}
	volume, err := win32.ParseVolumeName(link.Target())
	if err != nil {
		return nil, refuseLink(at, "a mount point without a volume")
	}
	mounts, err := w.host.mountsOf(volume)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(mounts, func(path string) bool { return paths.EqualText(path, at) }) {
		return nil, refuseLink(at, "a mount point that Windows' mount manager does not know")
	}
	if outside := slices.IndexFunc(mounts, w.host.outside); outside >= 0 {
		return nil, refuseLink(at, "a volume that is also at "+mounts[outside])
	}
	dir, err := w.dir.OpenMounted(name)
	if err != nil {
		return nil, failed(err, "open the mounted folder %s", at)
	}
	final, err := dir.Path()
	if err == nil && slices.ContainsFunc(mounts, func(path string) bool { return paths.EqualText(path, final) }) {
		w.volume = volume
		return dir, nil
	}
	_ = dir.Close()
	if err != nil {
		return nil, failed(err, "ask where the mounted folder %s leads", at)
	}
	return nil, refuseLink(at, "no longer the mounted folder that it was a moment ago")
}

// outside reports whether a path is below no root, in the roots' own words or where
// they really are.
func (h *Host) outside(path string) bool {
	if _, err := h.rules.Check("mount", path); err == nil {
		return false
	}
	for _, r := range h.roots {
		if final := r.where(); final != "" && len(path) > len(final) && path[len(final)] == '\\' && paths.EqualText(path[:len(final)], final) {
			return false
		}
	}
	return true
}

// mountsOf returns the paths of a volume without their last backslash.
func (h *Host) mountsOf(volume string) ([]string, error) {
	names, err := h.machine.Volumes.PathNames(volume)
	if err != nil {
		return nil, failed(err, "ask where the volume %s is mounted", volume)
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, `\`)
	}
	return names, nil
}

func refuseLink(at, what string) error {
	return fmt.Errorf("%w: %s is %s, and such are not followed on the way to a path; remove it, or give the path that "+
		"it leads to", backend.ErrPrecondition, at, what)
}

// readReparse returns the target of a reparse point. ErrorNotAReparsePoint for any
// other entry.
func readReparse(dir win32.Directory, name string) (win32.Reparse, error) {
	data, err := dir.Reparse(name)
	if err != nil {
		return win32.Reparse{}, err
	}
	return win32.DecodeReparse(data)
}

// isGone reports whether nothing is at a path, as Windows or a walk says it.
func isGone(err error) bool {
	return errors.Is(err, backend.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}
