package tartree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// Pack writes the tar stream of one tree.
type Pack struct {
	// Name is the name of the file or directory in the stream; Whole for a directory whose
	// entries have no common first part.
	Name string
	// Warn is called for what is left out: sockets, pipes and devices.
	Warn     func(text string)
	Progress Progress
}

// File packs a regular file.
func (p Pack) File(ctx context.Context, out io.Writer, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w := p.packer(ctx, out)
	if err := w.file(file, info, p.Name); err != nil {
		return err
	}
	return w.tar.Close()
}

// Tree packs a directory with everything below it. Symbolic links are packed as links. An
// entry that vanishes meanwhile is left out; one that cannot be read is an error.
func (p Pack) Tree(ctx context.Context, out io.Writer, root *os.Root) error {
	w := p.packer(ctx, out)
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := w.directory(root, info, p.Name, 1); err != nil {
		return err
	}
	return w.tar.Close()
}

type packer struct {
	Pack
	ctx context.Context //nolint:containedctx // it lives as long as the call
	tar *tar.Writer
	// buffer is for the content of one file after the other: without it, the tree's size
	// would be the garbage's.
	buffer []byte
}

func (p Pack) packer(ctx context.Context, out io.Writer) packer {
	return packer{Pack: p, ctx: ctx, tar: tar.NewWriter(out), buffer: make([]byte, blockSize)}
}

// header has PAX's form: times have fractions, and names may have any length and bytes.
func (w *packer) header(info fs.FileInfo, name string, kind byte) *tar.Header {
	uid, gid := owner(info)
	return &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(info.Mode().Perm()), Uid: uid, Gid: gid, ModTime: info.ModTime(),
		Format: tar.FormatPAX,
	}
}

// listSize is the number of entries that are read at once: a directory may have any number.
const listSize = 256

func (w *packer) directory(dir *os.Root, info fs.FileInfo, name string, depth int) error {
	if depth > maximumDepth || len(name) > maximumPath {
		return fmt.Errorf("%.100q… is more than %d directories deep, or its path has more than %d bytes", name, maximumDepth, maximumPath)
	}
	if err := w.tar.WriteHeader(w.header(info, name+"/", tar.TypeDir)); err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	list, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("list %q: %w", name, err)
	}
	defer func() { _ = list.Close() }()
	for {
		entries, err := list.ReadDir(listSize)
		for _, entry := range entries {
			if err := w.entry(dir, entry.Name(), path.Join(name, entry.Name()), depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("list %q: %w", name, err)
		}
	}
}

// entry packs what a directory has under a name; as is its name in the stream.
func (w *packer) entry(dir *os.Root, name, as string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	info, err := dir.Lstat(name)
	if err == nil {
		switch info.Mode().Type() {
		case fs.ModeDir:
			err = w.subdirectory(dir, name, as, depth)
		case fs.ModeSymlink:
			err = w.link(dir, name, as, info)
		case 0:
			err = w.regular(dir, name, as)
		default:
			w.Warn(leftOut(as, info.Mode()))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it vanished
	}
	return err
}

func (w *packer) subdirectory(dir *os.Root, name, as string, depth int) error {
	below, err := dir.OpenRoot(name)
	if err != nil {
		return fmt.Errorf("open %q: %w", as, err)
	}
	defer func() { _ = below.Close() }()
	info, err := below.Stat(".")
	if err != nil {
		return err
	}
	return w.directory(below, info, as, depth+1)
}

func (w *packer) link(dir *os.Root, name, as string, info fs.FileInfo) error {
	to, err := dir.Readlink(name)
	if err != nil {
		return fmt.Errorf("read the link %q: %w", as, err)
	}
	header := w.header(info, as, tar.TypeSymlink)
	header.Linkname = to
	if err := w.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	return nil
}

// regular opens a file. What was a file a moment ago may be a pipe now: the open does not
// wait for a writer.
func (w *packer) regular(dir *os.Root, name, as string) error {
	file, err := dir.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", as, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open %q: %w", as, err)
	}
	if !info.Mode().IsRegular() {
		w.Warn(leftOut(as, info.Mode()))
		return nil
	}
	return w.file(file, info, as)
}

// file packs as many bytes as the file has now: one that grows meanwhile is packed to its
// earlier end, and one that shrinks is an error.
func (w *packer) file(file *os.File, info fs.FileInfo, as string) error {
	header := w.header(info, as, tar.TypeReg)
	header.Size = info.Size()
	if err := w.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	for rest := header.Size; rest > 0; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := file.Read(w.buffer[:min(rest, blockSize)])
		if err != nil && n == 0 {
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("%q became shorter while it was read: try again", as)
			}
			return fmt.Errorf("read %q: %w", as, err)
		}
		if _, err := w.tar.Write(w.buffer[:n]); err != nil {
			return fmt.Errorf("pack %q: %w", as, err)
		}
		rest -= int64(n)
		w.Progress.add(int64(n))
	}
	return nil
}

// leftOut is the warning of what is not copied.
func leftOut(name string, mode fs.FileMode) string {
	return fmt.Sprintf("%q is left out: it is %s", name, kindOf(mode))
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a file"
	}
	return "of an unknown kind"
}

// CheckRegular returns an error if a path that the user named is neither a file nor a
// directory.
func CheckRegular(name string, mode fs.FileMode) error {
	if mode.IsRegular() || mode.IsDir() {
		return nil
	}
	return fmt.Errorf("%q is %s; only files, directories and the links in them can be copied", name, kindOf(mode))
}
