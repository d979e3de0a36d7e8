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

// walk goes down from a root, one handle at a time. It opens each directory by its name
// in the handle of the one above, which stays open until then, so that an entry that is
// renamed or replaced meanwhile cannot lead elsewhere. Opening reports the kind of an
// entry, so that each directory takes one call.
type walk struct {
	host   *Host
	root   *root
	dir    win32.Directory
	own    bool     // close closes dir, which is not the root's
	at     string   // the path of dir, from the root's final path
	volume string   // the mounted volume that dir lies on; "" for the root's
	names  []string // of the path, below the root
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

// enter goes down one level.
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
		return fmt.Errorf("%w: %s is a file, not a directory: %w", backend.ErrNotFound, w.child(name), err)
	default:
		return failed(err, "open the directory %s", w.child(name))
	}
	w.step(next, w.child(name))
	return nil
}

// enterAll goes down several levels: in one call if no mounted folder is on the way, as
// in nearly all cases, and otherwise level by level. With an error it returns the names
// that it did not enter.
func (w *walk) enterAll(ctx context.Context, names []string) (ahead []string, err error) {
	if len(names) > 1 {
		if next, err := w.dir.Open(names...); err == nil {
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

// glimpse returns the attributes of an entry without opening the directories to it. known
// is false if that is impossible, as behind a mounted folder. For a missing entry the
// error is ErrorFileNotFound or ErrorPathNotFound. It accesses only the root's own
// volume, so it runs in the caller's goroutine.
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
	info, err = dir.Stat(path.Components()...)
	return info, err == nil || errors.Is(err, fs.ErrNotExist), err
}

// openVolume opens a mounted folder on the way, if this proxy may have made it. It
// rejects every other reparse point.
//
// Any account that may write to a directory can plant a reparse point with the name of
// any volume. Only Windows' mount manager knows, also after a restart, whether an
// administrator mounted the volume there: then it lists the path among those of the
// volume. A volume that is also mounted outside the roots, as every volume with a drive
// letter is, was not mounted by this proxy alone, and is not entered. The path of the
// opened handle is compared last, so that a directory that replaced the folder is not
// entered either.
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
		return nil, failed(err, "find the path of the mounted folder %s", at)
	}
	return nil, refuseLink(at, "no longer the mounted folder that was inspected")
}

// outside reports whether a path is below no root, by the roots' configured paths and by
// those that Windows reports.
func (h *Host) outside(path string) bool {
	if _, err := h.rules.Check("mount", path); err == nil {
		return false
	}
	for _, r := range h.roots {
		final := r.where()
		if final != "" && len(path) > len(final) && path[len(final)] == '\\' && paths.EqualText(path[:len(final)], final) {
			return false
		}
	}
	return true
}

// mountsOf returns the paths of a volume without their last backslash.
func (h *Host) mountsOf(volume string) ([]string, error) {
	names, err := h.machine.Volumes.PathNames(volume)
	if err != nil {
		return nil, failed(err, "list the mount points of the volume %s", volume)
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, `\`)
	}
	return names, nil
}

func refuseLink(at, what string) error {
	return fmt.Errorf("%w: %s is %s, which csi-proxy does not follow; remove it, or give the path that it leads to",
		backend.ErrPrecondition, at, what)
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

// isGone reports whether an error of Windows or of a walk says that a path does not
// exist.
func isGone(err error) bool {
	return errors.Is(err, backend.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}
