package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// filesystem is api.Filesystem. Rmdir is in remove.go, Link in link.go.
type filesystem struct{ *Host }

// filesAtOnce bounds the OS threads that operations on directories can block.
const filesAtOnce = 128

// below runs an operation from a root down, in a goroutine. If a mounted volume does
// not answer, only the callers that need it wait, as long as their contexts allow. A
// driver that repeats a call for one path cannot take all the threads.
func below[T any](
	ctx context.Context, h *Host, path paths.Path, do func(*walk, context.Context) (T, error),
) (T, error) {
	return belowLocked(ctx, h, path, func() {}, do)
}

// belowLocked is below with a lock. It calls unlock when the operation has returned,
// which may be after the caller was answered.
func belowLocked[T any](
	ctx context.Context, h *Host, path paths.Path, unlock func(), do func(*walk, context.Context) (T, error),
) (T, error) {
	leave, err := h.tasks.queue.Enter(ctx, "files at "+path.Key(), questionsPerKey)
	if err != nil {
		unlock()
		var none T
		return none, err
	}
	ended := func() { leave(); unlock() }
	return onThread(ctx, h.tasks, h.files, ended, func(ctx context.Context) (T, error) {
		w, err := h.walk(path)
		if err != nil {
			var none T
			return none, err
		}
		defer w.close()
		return do(w, ctx)
	})
}

// change is below for an operation without a result.
func change(ctx context.Context, h *Host, path paths.Path, do func(*walk, context.Context) error) error {
	_, err := below(ctx, h, path, func(w *walk, ctx context.Context) (struct{}, error) { return struct{}{}, do(w, ctx) })
	return err
}

// PathExists implements api.Filesystem.
func (f filesystem) PathExists(ctx context.Context, text string) (bool, error) {
	path, err := f.rules.Check("path", text)
	if err != nil {
		return false, err
	}
	if _, known, err := f.glimpse(path); known {
		return err == nil, nil
	}
	return below(ctx, f.Host, path, func(w *walk, ctx context.Context) (bool, error) {
		if path.IsRoot() {
			return true, nil
		}
		name, err := w.toParent(ctx)
		if err == nil {
			_, err = w.stat(name)
		}
		if isGone(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// stat returns the attributes of an entry, by its parent's handle. ErrNotFound.
func (w *walk) stat(name string) (win32.FileInfo, error) {
	info, err := w.dir.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return info, fmt.Errorf("%w: %s: %w", backend.ErrNotFound, w.child(name), err)
	}
	if err != nil {
		return info, failed(err, "inspect %s", w.child(name))
	}
	return info, nil
}

// Mkdir implements api.Filesystem.
func (f filesystem) Mkdir(ctx context.Context, text string) error {
	path, err := f.rules.Check("path", text)
	if err != nil {
		return err
	}
	if info, known, err := f.glimpse(path); known && err == nil && info.IsDir() && !info.IsReparse() {
		return nil
	}
	return change(ctx, f.Host, path, (*walk).makeAll)
}

// makeAll makes the directory and the missing ones above it. A root exists.
func (w *walk) makeAll(ctx context.Context) error {
	if len(w.names) == 0 {
		return nil
	}
	last := len(w.names) - 1
	missing, err := w.enterAll(ctx, w.names[:last])
	if err != nil && !isGone(err) {
		return err
	}
	for _, name := range missing {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.makeOnTheWay(name); err != nil {
			return err
		}
	}
	return w.make(w.names[last])
}

// makeOnTheWay makes a directory that was missing and enters it, which also proves that
// it exists.
func (w *walk) makeOnTheWay(name string) error {
	if err := w.dir.Mkdir(name); err != nil && !errors.Is(err, win32.ErrorAlreadyExists) {
		return failed(err, "make the directory %s", w.child(name))
	}
	err := w.enter(name)
	if errors.Is(err, win32.ErrorDirectory) {
		return fmt.Errorf("%w: %s is a file; remove it, or choose another path", backend.ErrExists, w.child(name))
	}
	return err
}

// make makes the last directory. An existing one is not an error, and neither is a mounted
// folder; a link is not, because its target is not inspected.
func (w *walk) make(name string) error {
	made := w.dir.Mkdir(name)
	if made != nil && !errors.Is(made, win32.ErrorAlreadyExists) {
		return failed(made, "make the directory %s", w.child(name))
	}
	info, err := w.dir.Stat(name)
	switch {
	case err != nil && made == nil && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("make the directory %s: Windows answered success, but it does not exist: %w", w.child(name), err)
	case err != nil:
		return failed(err, "inspect %s", w.child(name))
	case info.IsReparse():
		return w.acceptFolder(name)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is a file; remove it, or choose another path", backend.ErrExists, w.child(name))
	}
	return nil
}

func (w *walk) acceptFolder(name string) error {
	link, err := readReparse(w.dir, name)
	if err == nil && link.IsVolume() {
		return nil
	}
	return fmt.Errorf("%w: %s is a link or another reparse point, not a directory; remove it, or choose another path",
		backend.ErrExists, w.child(name))
}

// IsLink implements api.Filesystem. It inspects the link's target once, and only for
// its existence. Within a mounted volume, whose content is a workload's, it inspects no
// target: a link could name a server, to which Windows would send this machine's
// credentials.
func (f filesystem) IsLink(ctx context.Context, text string) (bool, error) {
	path, err := f.rules.Check("path", text)
	if err != nil {
		return false, err
	}
	return below(ctx, f.Host, path, (*walk).isLink)
}

func (w *walk) isLink(ctx context.Context) (bool, error) {
	if len(w.names) == 0 {
		return false, nil
	}
	name, err := w.toParent(ctx)
	if err != nil {
		return false, err
	}
	info, err := w.stat(name)
	if err != nil || !info.IsReparse() {
		return false, err
	}
	link, err := readReparse(w.dir, name)
	if err != nil {
		return false, failed(err, "read where %s leads", w.child(name))
	}
	target := linkTarget(w.at, link)
	if target == "" {
		return false, nil
	}
	if w.volume != "" {
		return false, refuseLink(w.child(name), "a link within a mounted volume")
	}
	if _, err := w.host.machine.Files.Attributes(target); err != nil {
		w.host.logger.DebugContext(ctx, "a link leads nowhere", "path", w.child(name), "target", target, "error", err)
		return false, nil
	}
	return true, nil
}

// linkTarget returns the target of a link, junction or mounted folder as a path of a
// drive, of a share or of a volume; "" for any other target. at is the directory that
// the link lies in.
func linkTarget(at string, link win32.Reparse) string {
	target := link.Target()
	if link.Relative {
		return joinRelative(at, target)
	}
	switch {
	case link.Tag != win32.ReparseTagSymlink && link.Tag != win32.ReparseTagMountPoint:
		return ""
	case link.IsVolume():
		name, err := win32.ParseVolumeName(target)
		if err != nil {
			return ""
		}
		return name
	case strings.HasPrefix(target, `\\?\`), strings.HasPrefix(target, `\\.\`):
		return "" // another device
	case strings.HasPrefix(target, `\\`), len(target) > 2 && target[1] == ':' && target[2] == '\\':
		return target
	}
	return ""
}

// joinRelative resolves a relative link as Windows does: by its text, from the
// directory that the link lies in.
func joinRelative(at, target string) string {
	whole := strings.Split(at, `\`)
	if strings.HasPrefix(target, `\`) {
		whole = whole[:1]
	}
	for name := range strings.SplitSeq(target, `\`) {
		switch name {
		case "", ".":
		case "..":
			if len(whole) > 1 {
				whole = whole[:len(whole)-1]
			}
		default:
			whole = append(whole, name)
		}
	}
	return strings.Join(whole, `\`)
}
