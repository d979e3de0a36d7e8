package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Point is a path of a request whose directory was resolved once. Everything
// is done relative to that descriptor, so that no other process can put another
// directory in its way afterwards.
type Point struct {
	Path   string // as requested
	parent *os.File
	base   string
	real   string // as the mount table would name it
	anew   func() (*os.File, error)
}

// Resolve opens the directory of a checked path. ErrNotFound when it does not
// exist, ErrInvalid when a symlink is in the way or it leads into a forbidden
// directory after all.
func (r *Resolver) Resolve(name, path string) (*Point, error) {
	if err := r.CheckPath(name, path); err != nil {
		return nil, err
	}
	anew := func() (*os.File, error) { return r.openDir(name, filepath.Dir(path)) }
	parent, err := anew()
	if err != nil {
		return nil, err
	}
	p := &Point{Path: path, parent: parent, base: filepath.Base(path), anew: anew}
	directory, err := os.Readlink(descriptor(parent))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resolve %s: %w", path, err), parent.Close())
	}
	p.real = filepath.Join(directory, p.base)
	if err := r.checkForbidden(name, p.real); err != nil {
		return nil, errors.Join(err, parent.Close())
	}
	return p, nil
}

// openDir opens a directory without following symlinks but those in the name
// of the kubelet's directory.
func (r *Resolver) openDir(name, dir string) (*os.File, error) {
	start, rest := unix.AT_FDCWD, dir
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if r.kubeletDir != "" && within(r.kubeletDir, dir) {
		top, err := os.OpenFile(r.kubeletDir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, explainOpen(name, dir, err)
		}
		defer closeQuietly(top)
		start, rest = int(top.Fd()), strings.TrimPrefix(strings.TrimPrefix(dir, r.kubeletDir), "/")
		how.Resolve |= unix.RESOLVE_BENEATH
		if rest == "" {
			rest = "."
		}
	}
	fd, err := openat2(start, rest, &how)
	if err != nil {
		return nil, explainOpen(name, dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func explainOpen(name, path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s: directory %s: %w", name, path, backend.ErrNotFound)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%w: %s: %s contains a symbolic link", backend.ErrInvalid, name, path)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %s: a part of %s is not a directory", backend.ErrInvalid, name, path)
	case errors.Is(err, unix.ENAMETOOLONG):
		return fmt.Errorf("%w: %s: %s has too long a component", backend.ErrInvalid, name, abbreviate(path))
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: openat2: %w: Linux 5.12 or later is needed", name, backend.ErrUnsupported)
	}
	return fmt.Errorf("%s: open %s: %w", name, path, err)
}

// openat2 retries a call that a signal or a rename during the walk interrupted
// (openat2(2), EAGAIN with RESOLVE_BENEATH).
func openat2(dir int, path string, how *unix.OpenHow) (int, error) {
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dir, path, how)
		if !errors.Is(err, unix.EINTR) && (!errors.Is(err, unix.EAGAIN) || try > 100) {
			return fd, err
		}
	}
}

// Close closes the descriptor.
func (p *Point) Close() error { return p.parent.Close() }

// Real is the path as the mount table names it.
func (p *Point) Real() string { return p.real }

// Open opens the path as it is now: the topmost mount if there is one. The error wraps
// fs.ErrNotExist if it does not exist.
func (p *Point) Open() (*Node, error) { return openNode(p.parent, p.base, p.Path) }

// reopen opens the node again, walking the path from the start.
func (p *Point) reopen() (*Node, error) {
	parent, err := p.anew()
	if err != nil {
		return nil, err
	}
	defer closeQuietly(parent)
	return openNode(parent, p.base, p.Path)
}

// MakeDir makes a directory at the path and reports whether there was none.
func (p *Point) MakeDir() (created bool, err error) {
	err = unix.Mkdirat(int(p.parent.Fd()), p.base, 0o750)
	return p.made("directory", err)
}

// MakeFile makes an empty file at the path and reports whether there was none.
func (p *Point) MakeFile() (created bool, err error) {
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(p.parent.Fd()), p.base, flags, 0o660)
	if err == nil {
		err = unix.Close(fd)
	}
	return p.made("file", err)
}

func (p *Point) made(kind string, err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case errors.Is(err, unix.ENAMETOOLONG):
		return false, fmt.Errorf("%w: %s has too long a component", backend.ErrInvalid, abbreviate(p.Path))
	}
	return false, fmt.Errorf("make %s %s: %w", kind, p.Path, err)
}

// Remove removes an empty directory or an empty file; a missing one is not an error.
// Anything else is ErrPrecondition and stays: Holdfast did not make it.
func (p *Point) Remove() error {
	node, err := p.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeQuietly(node.file)
	flags := 0
	switch {
	case node.Dir:
		flags = unix.AT_REMOVEDIR
	case node.Symlink || node.Block || node.size != 0:
		return fmt.Errorf("remove %s: %w: it is neither an empty directory nor an empty file; remove it by hand",
			p.Path, backend.ErrPrecondition)
	}
	err = unix.Unlinkat(int(p.parent.Fd()), p.base, flags)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("remove %s: %w: the directory is not empty and nothing is mounted there; inspect its files and "+
			"remove them", p.Path, backend.ErrPrecondition)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove %s: %w: something is mounted there", p.Path, backend.ErrPrecondition)
	}
	return fmt.Errorf("remove %s: %w", p.Path, err)
}

// Unmount takes away the topmost mount at the path. ErrInUse when a process
// works in it. The name is resolved below the descriptor of the directory: a
// descriptor of the mount itself would keep it busy.
func (p *Point) Unmount() error {
	err := unix.Unmount(descriptor(p.parent)+"/"+p.base, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %s: %w: a process works in it; find it with: fuser -vm %s",
			p.Path, backend.ErrInUse, p.Path)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", p.Path, err)
	}
	return nil
}

// Attach puts a detached mount at the path and reads back, from the start of
// the path, that it is there. If it is not, it is taken away again.
func (p *Point) Attach(t *Tree) error {
	node, err := p.Open()
	if err != nil {
		return err
	}
	defer closeQuietly(node.file)
	switch {
	case node.Symlink:
		return fmt.Errorf("mount at %s: %w: it is a symbolic link", p.Path, backend.ErrInvalid)
	case node.Dir != t.dir:
		return fmt.Errorf("mount at %s: %w: it is a %s", p.Path, backend.ErrPrecondition, node.kind())
	case node.MountRoot:
		return fmt.Errorf("mount at %s: %w: something was mounted there meanwhile", p.Path, backend.ErrPrecondition)
	}
	const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(int(t.file.Fd()), "", int(node.file.Fd()), "", flags); err != nil {
		return fmt.Errorf("mount at %s: %w", p.Path, err)
	}
	if err := p.verifyAttached(t); err != nil {
		return errors.Join(err, t.detach())
	}
	return nil
}

func (p *Point) verifyAttached(t *Tree) error {
	want, err := inspect(t.file, p.Path)
	if err != nil {
		return err
	}
	got, err := p.reopen()
	if err != nil {
		return fmt.Errorf("mount at %s: it cannot be found there afterwards: %w", p.Path, err)
	}
	defer closeQuietly(got.file)
	if got.MountID != want.MountID || !got.MountRoot {
		return fmt.Errorf("mount at %s: %w: the path leads elsewhere now; another process changes it",
			p.Path, backend.ErrPrecondition)
	}
	return nil
}

// descriptor is a path that leads to an open file even if its name changes.
func descriptor(file *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
}

func closeQuietly(file *os.File) { _ = file.Close() }
