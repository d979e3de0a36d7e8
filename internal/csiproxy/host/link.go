package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Link implements api.Filesystem. It always makes a link to a directory, and the source
// must exist. os.Symlink would derive the kind from the source, and make a link to a
// file if the source is missing.
func (f filesystem) Link(ctx context.Context, source, link string) error {
	from, err := f.rules.Target("source path", source)
	if err != nil {
		return err
	}
	at, err := f.rules.Target("target path", link)
	if err != nil {
		return err
	}
	if from.Equal(at) {
		return fmt.Errorf("%w: target path %q is the source path as well; a link cannot lead to itself",
			backend.ErrInvalid, link)
	}
	if err := change(ctx, f.Host, from, (*walk).checkSource); err != nil {
		return fmt.Errorf("the source of a link: %w", err)
	}
	return change(ctx, f.Host, at, func(w *walk, ctx context.Context) error {
		name, err := w.toParent(ctx)
		if err != nil {
			return err
		}
		return w.link(name, from.String())
	})
}

// checkSource: only a directory, a link or a mounted folder can be a source.
func (w *walk) checkSource(ctx context.Context) error {
	name, err := w.toParent(ctx)
	if err != nil {
		return err
	}
	info, err := w.stat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %s is a file; give a directory", backend.ErrPrecondition, w.child(name))
	}
	return err
}

// link makes the link unless it exists, and reads it back: wine answers success and
// makes no link.
func (w *walk) link(name, target string) error {
	info, err := w.stat(name)
	if err == nil {
		return w.accept(info, name, target)
	}
	if !isGone(err) {
		return err
	}
	made := w.dir.Symlink(name, target)
	switch {
	case made == nil || isErrno(made, win32.ErrorAlreadyExists, win32.ErrorFileExists):
	case isGone(made): // the directory is open, so it is the link that is missing
		return fmt.Errorf("link %s to %s: Windows answered success, but the link does not exist: %w",
			w.child(name), target, made)
	default:
		return failed(made, "link %s to %s", w.child(name), target)
	}
	info, err = w.stat(name)
	switch {
	case err == nil && made != nil:
		return w.accept(info, name, target)
	case err == nil:
		err = w.sameLink(info, name, target)
	case isGone(err) && made != nil:
		return fmt.Errorf("%w: %s existed and was removed meanwhile; another call works on it, repeat this one",
			backend.ErrBusy, w.child(name))
	case isGone(err):
		return fmt.Errorf("link %s to %s: Windows answered success, but the link does not exist", w.child(name), target)
	}
	if err != nil {
		return fmt.Errorf("link %s to %s: Windows answered success, but: %w", w.child(name), target, err)
	}
	return nil
}

// accept returns nil for an entry that is the same link.
func (w *walk) accept(info win32.FileInfo, name, target string) error {
	if err := w.sameLink(info, name, target); err != nil {
		return fmt.Errorf("%w: %s exists already: %s", backend.ErrExists, w.child(name), err.Error())
	}
	return nil
}

// sameLink returns an error that says how an entry differs from a link to the directory
// target.
func (w *walk) sameLink(info win32.FileInfo, name, target string) error {
	if !info.IsReparse() || !info.IsDir() {
		return errors.New("it is not a link to a directory")
	}
	link, err := readReparse(w.dir, name)
	if err != nil {
		return failed(err, "read where it leads")
	}
	leads := strings.TrimSuffix(linkTarget(w.at, link), `\`)
	if link.Tag != win32.ReparseTagSymlink || !paths.EqualText(leads, strings.TrimSuffix(target, `\`)) {
		return fmt.Errorf("it leads to %.300q", link.Target())
	}
	return nil
}
