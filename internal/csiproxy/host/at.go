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

// maxLinks is how many links are followed from one path, as upstream does it.
const maxLinks = 256

// noVolume is the error for a path at which no volume is mounted. Drivers in the field
// recognise it by the text "because it does not exist"; any other text is a fault to
// them.
func noVolume(path string) error {
	return fmt.Errorf("%w: no volume at %s, because it does not exist or is not mounted", backend.ErrNotFound, path)
}

// step is the result of one step: a volume, or a link to follow.
type step struct {
	volume string
	next   paths.Path
}

// At implements api.Volumes.
func (v volumes) At(ctx context.Context, text string) (string, error) {
	return v.follow(ctx, text, (*walk).resolveLast)
}

// Closest implements api.Volumes.
func (v volumes) Closest(ctx context.Context, text string) (string, error) {
	return v.follow(ctx, text, (*walk).traverse)
}

// follow resolves a path, then the target of its link, and so on. Each target is
// checked as a path of a caller is: links are followed within the roots only.
func (v volumes) follow(
	ctx context.Context, text string, resolve func(*walk, context.Context) (step, error),
) (string, error) {
	path, err := v.rules.Check("target path", text)
	if err != nil {
		return "", err
	}
	for range maxLinks + 1 {
		seen, err := below(ctx, v.Host, path, resolve)
		if isGone(err) {
			return "", noVolume(text)
		}
		if err != nil || seen.volume != "" {
			return seen.volume, err
		}
		path = seen.next
	}
	return "", fmt.Errorf("%w: more than %d links from %s; they may lead in a circle, remove one",
		backend.ErrPrecondition, maxLinks, text)
}

// resolveLast resolves the last name only: no directory on the path may be a link.
func (w *walk) resolveLast(ctx context.Context) (step, error) {
	if len(w.names) == 0 {
		return step{}, noVolume(w.at)
	}
	name, err := w.toParent(ctx)
	if err != nil {
		return step{}, err
	}
	info, err := w.stat(name)
	if err != nil {
		return step{}, err
	}
	if !info.IsReparse() {
		return step{}, noVolume(w.child(name))
	}
	return w.resolveReparse(name, "")
}

// traverse resolves every name from the root down, and returns the last volume that it
// entered.
func (w *walk) traverse(ctx context.Context) (step, error) {
	for i, name := range w.names {
		if err := ctx.Err(); err != nil {
			return step{}, err
		}
		info, err := w.stat(name)
		if err != nil {
			return step{}, err
		}
		last, rest := i == len(w.names)-1, strings.Join(w.names[i+1:], `\`)
		if info.IsReparse() {
			seen, err := w.resolveReparse(name, rest)
			if err != nil || seen.volume == "" || last {
				return seen, err
			}
		}
		if last {
			break
		}
		if err := w.enter(name); err != nil {
			return step{}, err
		}
	}
	if w.volume != "" {
		return step{volume: w.volume}, nil
	}
	volume, err := w.host.volumeOf(w.root.where())
	return step{volume: volume}, err
}

// resolveReparse returns the volume that is mounted at a reparse point, or the target
// of a link; rest is the part of the path after it. Tags are compared as numbers:
// links have most of a mount point's bits.
func (w *walk) resolveReparse(name, rest string) (step, error) {
	at := w.child(name)
	link, err := readReparse(w.dir, name)
	if isErrno(err, win32.ErrorNotAReparsePoint) {
		return step{}, noVolume(at) // it was unmounted since the caller read its attributes
	}
	if err != nil {
		return step{}, failed(err, "read where %s leads", at)
	}
	if link.IsVolume() {
		volume, err := w.host.mountedAt(at, link)
		return step{volume: volume}, err
	}
	target := linkTarget(w.at, link)
	if target == "" {
		return step{}, noVolume(at)
	}
	if w.volume != "" {
		return step{}, refuseLink(at, "a link within a mounted volume")
	}
	if rest != "" {
		target = strings.TrimSuffix(target, `\`) + `\` + rest
	}
	next, err := w.host.rules.Check("target of the link "+at, target)
	if err != nil {
		return step{}, fmt.Errorf("%w: %s leads to %.300q, and links are followed within the configured directories "+
			"only; remove it", backend.ErrPrecondition, at, target)
	}
	return step{next: next}, nil
}

// mountedAt returns the volume at a mounted folder, by the name under which Windows
// lists it: a volume may have several names. If the volume no longer exists, it
// returns the name in the folder, which a driver needs for unstaging.
func (h *Host) mountedAt(at string, link win32.Reparse) (string, error) {
	named, err := h.machine.Volumes.MountPoint(at + `\`)
	if err != nil {
		h.logger.Debug("Windows does not know the volume of a mounted folder", "path", at,
			"volume", link.Target(), "error", err)
		named = link.Target()
	}
	volume, err := win32.ParseVolumeName(named)
	if err != nil {
		return "", noVolume(at)
	}
	return volume, nil
}

// volumeOf returns the volume that a path lies on: that of the closest mounted folder
// above, or of the drive.
func (h *Host) volumeOf(path string) (string, error) {
	for {
		name, err := h.machine.Volumes.MountPoint(path + `\`)
		if err == nil {
			return win32.ParseVolumeName(name)
		}
		above := strings.LastIndex(path, `\`)
		if above < 0 || errors.Is(err, fs.ErrPermission) {
			return "", failed(err, `ask which volume %s\ is`, path)
		}
		path = path[:above]
	}
}
