package inside

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/tartree"
)

// A copy runs in a process of its own, with the rights of the container's user, but in none
// of its namespaces, and it executes nothing of the container. The container's processes do
// not see it: they can neither trace it nor reach this program's file through /proc (as
// with runc, CVE-2019-5736). It has a descriptor of the container's root, below which the
// kernel resolves the path (openat2(2), RESOLVE_IN_ROOT), as for a process in there; what
// is below that path is reached by os.Root, step by step.

// copyUmask is the mask of new files and directories without their permissions.
const copyUmask = 0o022

// runCopy copies until the stream ends, or the other side is gone.
func runCopy(order Order, spec io.Reader) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go endCopy(spec, order.Copy.Upload, cancel)
	runtime.LockOSThread() // never unlocked: the rights are the thread's
	unix.Umask(copyUmask)
	if err := assume(order.Container); err != nil {
		return err
	}
	c := copying{CopyOrder: *order.Copy, root: RootDescriptor, warn: func(text string) { fmt.Fprintln(os.Stderr, text) }}
	if !strings.HasPrefix(c.Path, "/") {
		c.Path = strings.TrimSuffix(order.Directory, "/") + "/" + c.Path
	}
	if c.Upload {
		return c.unpack(ctx)
	}
	return c.pack(ctx)
}

// endCopy ends the copy when the other side has closed the pipe, or is gone. An upload
// removes what is unfinished.
func endCopy(spec io.Reader, upload bool, cancel func()) {
	_, _ = io.Copy(io.Discard, spec)
	cancel()
	if upload {
		time.Sleep(endLimit)
	}
	os.Exit(1)
}

// copying is a copy below a container's root.
type copying struct {
	CopyOrder
	root int
	warn func(string)
}

// pack writes the stream of what is at the path. The path itself may be a link.
func (c copying) pack(ctx context.Context) error {
	found, err := c.find(c.Path)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	info, err := found.Stat()
	if err != nil {
		return fmt.Errorf("open %q in the container: %w", c.Path, err)
	}
	if err := tartree.CheckRegular(c.Path, info.Mode()); err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, copyBuffer)
	pack := tartree.Pack{Name: c.Name, Warn: c.warn}
	if info.IsDir() {
		root, err := os.OpenRoot(byDescriptor(found))
		if err != nil {
			return c.unreadable(err)
		}
		defer func() { _ = root.Close() }()
		return errors.Join(pack.Tree(ctx, out, root), out.Flush())
	}
	file, err := os.OpenFile(byDescriptor(found), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return c.unreadable(err)
	}
	defer func() { _ = file.Close() }()
	return errors.Join(pack.File(ctx, out, file), out.Flush())
}

// unreadable names the path of the user instead of the descriptor's.
func (c copying) unreadable(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("open %q in the container: %w", c.Path, err)
}

// copyBuffer is the unit of writes into a pipe: its capacity (pipe(7)).
const copyBuffer = 64 << 10

// unpack writes what is in the stream to the path, or below it if it is a directory.
func (c copying) unpack(ctx context.Context) error {
	parent, name, err := c.target()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(byDescriptor(parent))
	_ = parent.Close()
	if err != nil {
		return c.unreadable(err)
	}
	defer func() { _ = root.Close() }()
	done, err := tartree.Unpack{Name: c.Name, As: name, Links: true, Preserve: !c.NoPreserve, Warn: c.warn}.
		Run(ctx, bufio.NewReaderSize(os.Stdin, copyBuffer), root)
	if err != nil && done.Kept {
		err = fmt.Errorf("%w; %d files were complete before that, and stay", err, done.Files)
	}
	return err
}

// target opens the directory to write to, and names the entry of it that is written: as with
// cp(1), what is copied to a directory that exists becomes an entry of it.
func (c copying) target() (*os.File, string, error) {
	directory, err := c.find(c.Path)
	if err == nil {
		info, err := directory.Stat()
		if err == nil && info.IsDir() {
			return directory, c.Name, nil // Name is "." for the content of a directory
		}
		_ = directory.Close()
		if err != nil {
			return nil, "", err
		}
	}
	trimmed := strings.TrimRight(c.Path, "/")
	parent, name := path.Split(trimmed)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	case trimmed != c.Path || name == "." || name == "..":
		return nil, "", fmt.Errorf("%q in the container is not a directory", c.Path)
	}
	if directory, err = c.find(parent); err != nil {
		return nil, "", err
	}
	return directory, name, nil
}

// find opens a path as the container's processes see it: the kernel takes its root for /,
// and follows no magic link of /proc.
func (c copying) find(name string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		descriptor, err := unix.Openat2(c.root, name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // a rename on the way (openat2(2))
		case err != nil:
			return nil, fmt.Errorf("open %q in the container: %w", name, err)
		default:
			return os.NewFile(uintptr(descriptor), name), nil
		}
	}
}

// byDescriptor is a path by which what a descriptor leads to can be opened again, with the
// rights of this thread.
func byDescriptor(file *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(file.Fd())) }
