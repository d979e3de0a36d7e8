package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// mountTarget is a directory at which a volume is mounted, or may be. It and the
// directory above stay open until close, so that Windows' calls, which take the path,
// work on the directory that was checked.
type mountTarget struct {
	// directory is the path for Windows' calls, with the last backslash.
	directory string
	// volume is mounted there, in the spelling of win32.ParseVolumeName; "" if none is.
	volume string

	walk *walk
	name string
	dir  win32.Directory // itself, unless something is mounted there
}

// mountTarget checks the path of a mount. ErrInvalid for a root, ErrNotFound for a
// missing directory, ErrPrecondition for a file or a link.
func (h *Host) mountTarget(ctx context.Context, path paths.Path) (*mountTarget, error) {
	if h.rules.HoldsRoot(path) {
		return nil, fmt.Errorf("%w: %s is, or contains, a root directory of csi-proxy, at which it mounts no volume; "+
			"give a path below it", backend.ErrInvalid, path)
	}
	w, err := h.walk(path)
	if err != nil {
		return nil, err
	}
	t := &mountTarget{walk: w}
	if t.name, err = w.toParent(ctx); err == nil {
		t.directory = w.child(t.name) + `\`
		err = t.open()
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *mountTarget) open() error {
	at := t.walk.child(t.name)
	dir, err := t.walk.dir.Open(t.name)
	switch {
	case err == nil:
		t.dir = dir
		return nil
	case isErrno(err, win32.ErrorFileNotFound, win32.ErrorPathNotFound):
		return failedAs(backend.ErrNotFound, err, "a mount needs the directory %s", at)
	case isErrno(err, win32.ErrorDirectory):
		return failedAs(backend.ErrPrecondition, err, "%s is a file, and a volume is mounted at a directory", at)
	case !errors.Is(err, win32.ErrorStoppedOnSymlink):
		return failed(err, "open the directory %s", at)
	}
	if t.volume, err = t.mounted(); err == nil && t.volume == "" {
		return refuseLink(at, "a link or another reparse point")
	}
	return err
}

// mounted reads which volume is mounted now, "" for none: it reads back a mount or an
// unmount.
func (t *mountTarget) mounted() (string, error) {
	link, err := readReparse(t.walk.dir, t.name)
	switch {
	case isErrno(err, win32.ErrorNotAReparsePoint):
		return "", nil
	case err != nil:
		return "", failed(err, "read which volume is mounted at %s", t.directory)
	case !link.IsVolume():
		return "", nil
	}
	return t.walk.host.mountedAt(t.walk.child(t.name), link)
}

// ready returns nil if a volume can be mounted: at an empty directory on the machine's
// own disk. It is ErrPrecondition for any other.
func (t *mountTarget) ready() error {
	if t.volume != "" {
		return fmt.Errorf("%w: the volume %s is mounted at %s; unmount it first", backend.ErrPrecondition,
			t.volume, t.directory)
	}
	if t.walk.volume != "" {
		return fmt.Errorf("%w: %s lies within the mounted volume %s; choose a directory on the machine's own disk",
			backend.ErrPrecondition, t.directory, t.walk.volume)
	}
	entries, err := t.dir.List()
	if err != nil {
		return failed(err, "list the directory %s", t.directory)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s is not empty, it has %.60q; a volume is mounted at an empty directory",
			backend.ErrPrecondition, t.directory, entries[0].Name)
	}
	return nil
}

// set mounts the volume. It keeps the directory open meanwhile, so that no process
// replaces it, unless Windows needs exclusive access; the directory above stays open
// in both cases. Afterwards set reads the mounted volume back.
func (t *mountTarget) set(volume string) error {
	err := t.walk.host.machine.Volumes.SetMountPoint(t.directory, volume)
	if isErrno(err, win32.ErrorSharingViolation) && t.dir != nil {
		_ = t.dir.Close()
		t.dir = nil
		err = t.walk.host.machine.Volumes.SetMountPoint(t.directory, volume)
	}
	return err
}

func (t *mountTarget) close() {
	if t.dir != nil {
		_ = t.dir.Close()
	}
	t.walk.close()
}
