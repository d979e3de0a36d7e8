package tartree

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Unpack writes what is in a tar stream below a directory.
type Unpack struct {
	// Name is the first part of every name in the stream; Whole if they have none in common.
	Name string
	// As is the entry of the directory that replaces Name; "." is the directory itself.
	As string
	// Links: make symbolic and hard links. Otherwise they are left out: a program that later
	// opens a link that an attacker made could read or write any file.
	Links bool
	// Preserve keeps the permissions and times of the stream. The bits for setuid, setgid
	// and sticky are never kept, and neither is the owner.
	Preserve bool
	// Warn is called for what is left out.
	Warn     func(text string)
	Progress Progress
}

// Done is what was written.
type Done struct {
	Files int64
	// Kept: files that were written before an error are in the directory. Otherwise an error
	// leaves nothing behind.
	Kept bool
}

// ErrTruncated means that the stream ended before its end mark.
var ErrTruncated = errors.New("the stream ended before its end")

// temporaryPrefix begins the names of what is not complete.
const temporaryPrefix = ".holdfast-cp-"

func temporaryName() string { return temporaryPrefix + strings.ToLower(rand.Text()[:10]) }

// Run unpacks the stream. What did not exist before appears when it is complete, under its
// name, or not at all. In a directory that existed, this holds for each file.
func (u Unpack) Run(ctx context.Context, in io.Reader, root *os.Root) (Done, error) {
	if u.As == "." {
		return u.run(ctx, in, root)
	}
	_, err := root.Lstat(u.As)
	switch {
	case err == nil:
		return u.run(ctx, in, root)
	case !errors.Is(err, fs.ErrNotExist):
		return Done{}, err
	}
	name := u.As
	u.As = temporaryName()
	done, err := u.run(ctx, in, root)
	if err == nil {
		if err = root.Rename(u.As, name); errors.Is(err, fs.ErrNotExist) {
			err = errors.New("the stream is empty")
		}
	}
	if err == nil {
		return done, nil
	}
	if left := removeTree(root, u.As); left != nil {
		return done, errors.Join(err, fmt.Errorf("the unfinished copy %q stays: %w", u.As, left))
	}
	return Done{}, err
}

// removeTree removes a tree of the caller's own, whose directories may be read-only.
func removeTree(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = fs.WalkDir(root.FS(), name, func(path string, entry fs.DirEntry, err error) error {
		if err != nil && entry == nil || !entry.IsDir() {
			return nil // RemoveAll reports what cannot be removed
		}
		return root.Chmod(path, 0o700) //nolint:gosec // its owner may do everything, others nothing
	})
	return root.RemoveAll(name)
}

func (u Unpack) run(ctx context.Context, in io.Reader, root *os.Root) (Done, error) {
	source := &endReader{from: in}
	w := unpacker{Unpack: u, ctx: ctx, tar: tar.NewReader(source), root: root, buffer: make([]byte, blockSize), zeros: make([]byte, blockSize)}
	for {
		header, err := w.tar.Next()
		if err == nil {
			err = w.entry(header)
		}
		if errors.Is(err, io.EOF) && !source.ended {
			err = w.leave("")
			if err == nil {
				_, err = io.Copy(io.Discard, in) // GNU tar pads its streams
			}
			return w.done, err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrTruncated
		}
		if err != nil {
			_ = w.leave("") // as far as that is possible
			return w.done, err
		}
	}
}

// endReader remembers that its source has ended: to archive/tar, a stream that ends between
// two entries is as complete as one with an end mark, which is read before the source ends.
type endReader struct {
	from  io.Reader
	ended bool
}

func (e *endReader) Read(into []byte) (int, error) {
	n, err := e.from.Read(into)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil // the next call gets it
	}
	e.ended = e.ended || errors.Is(err, io.EOF)
	return n, err
}

type unpacker struct {
	Unpack
	ctx  context.Context //nolint:containedctx // it lives as long as the call
	tar  *tar.Reader
	root *os.Root
	done Done
	// open are the directories above the last entry whose attributes are set when the
	// stream leaves them: a read-only one could not be written to.
	open []directory
	// buffer and zeros are for the content of one file after the other.
	buffer, zeros []byte
}

type directory struct {
	name   string
	header *tar.Header
}

func (w *unpacker) entry(header *tar.Header) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := w.place(header.Name)
	if err != nil {
		return err
	}
	if err := w.leave(name); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		err = w.directory(header, name)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = w.replace(name, func(temporary string) error { return w.file(header, temporary) })
	case tar.TypeSymlink, tar.TypeLink:
		err = w.link(header, name)
	default:
		w.Warn(leftOut(header.Name, header.FileInfo().Mode()))
	}
	if err != nil {
		return fmt.Errorf("unpack %q: %w", header.Name, err)
	}
	return nil
}

// place is the path below the root for a name of the stream.
func (w *unpacker) place(name string) (string, error) {
	name, err := cleanName(name)
	if err != nil {
		return "", err
	}
	if name, err = below(name, w.Name); err != nil {
		return "", err
	}
	return path.Join(w.As, name), nil
}

// leave sets the attributes of the directories that do not contain the next entry.
func (w *unpacker) leave(next string) error {
	for last := len(w.open) - 1; last >= 0; last-- {
		d := w.open[last]
		if next != "" && (d.name == "." || strings.HasPrefix(next+"/", d.name+"/")) {
			return nil
		}
		w.open = w.open[:last]
		if err := w.root.Chmod(d.name, d.header.FileInfo().Mode().Perm()); err != nil {
			return fmt.Errorf("set the permissions of %q: %w", d.name, err)
		}
		if err := w.setTimes(d.name, d.header); err != nil {
			return err
		}
	}
	return nil
}

// setTimes gives the time of the last change to both times: the stream has no other.
func (w *unpacker) setTimes(name string, header *tar.Header) error {
	if header.ModTime.IsZero() {
		return nil
	}
	if err := w.root.Chtimes(name, header.ModTime, header.ModTime); err != nil {
		return fmt.Errorf("set the time of %q: %w", name, err)
	}
	return nil
}

// directory makes a directory; one that exists stays as it is.
func (w *unpacker) directory(header *tar.Header, name string) error {
	mode := fs.FileMode(0o777)
	if w.Preserve {
		mode = 0o700
	}
	if parent := path.Dir(name); parent != "." {
		if err := w.root.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // as mkdir makes them
			return err
		}
	}
	err := w.root.Mkdir(name, mode)
	if name == "." || errors.Is(err, fs.ErrExist) {
		info, err := w.root.Stat(name) // a link to a directory below the root is one, too
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("there is %s, and not a directory, of this name", kindOf(info.Mode()))
		}
		return err
	}
	if err == nil && w.Preserve {
		w.open = append(w.open, directory{name, header})
	}
	return err
}

// replace makes something under a temporary name in the same directory, and renames it: a
// link or an open file of the old name is never written through.
func (w *unpacker) replace(name string, do func(temporary string) error) error {
	parent := path.Dir(name)
	if parent != "." {
		if err := w.root.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // as mkdir makes them
			return err
		}
	}
	if name == "." {
		return errors.New("the target is a directory, and this is not")
	}
	temporary := path.Join(parent, temporaryName())
	err := do(temporary)
	if err == nil {
		err = w.root.Rename(temporary, name)
	}
	if err == nil {
		w.done.Files++
		w.done.Kept = true
	}
	// Of two links to one file, rename(2) removes neither.
	if left := w.root.Remove(temporary); err != nil && left != nil && !errors.Is(left, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("the unfinished file %q stays: %w", temporary, left))
	}
	return err
}

// file writes a regular file.
func (w *unpacker) file(header *tar.Header, name string) error {
	mode := fs.FileMode(0o666)
	if w.Preserve {
		mode = 0o600
	}
	file, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = w.content(file, header.Size)
	if err == nil && w.Preserve {
		err = file.Chmod(header.FileInfo().Mode().Perm())
	}
	if err = errors.Join(err, file.Close()); err != nil || !w.Preserve {
		return err
	}
	return w.setTimes(name, header)
}

// link makes a symbolic link as it is, and a hard link to a file of the same stream.
func (w *unpacker) link(header *tar.Header, name string) error {
	if !w.Links {
		w.Warn(fmt.Sprintf("%q is left out: it is a link to %q", header.Name, header.Linkname))
		return nil
	}
	if header.Typeflag == tar.TypeSymlink {
		return w.replace(name, func(temporary string) error { return w.root.Symlink(header.Linkname, temporary) })
	}
	target, err := w.place(header.Linkname)
	if err != nil {
		return err
	}
	return w.replace(name, func(temporary string) error { return w.root.Link(target, temporary) })
}
