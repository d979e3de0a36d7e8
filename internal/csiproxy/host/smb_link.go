package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// linkState is the state of the path of a mount's link.
type linkState int

const (
	noParent linkState = iota // its directory is missing too
	noEntry
	sameTarget // a link to the remote path in question
	another    // any other entry
)

// atLink inspects a link's path without following it. A path that cannot be
// inspected is an error.
func (s smb) atLink(ctx context.Context, path paths.Path, target string) (linkState, error) {
	w, err := s.walk(path)
	if err != nil {
		return noParent, err
	}
	defer w.close()
	name, err := w.toParent(ctx)
	if isGone(err) {
		return noParent, nil
	}
	if err != nil {
		return noParent, err
	}
	leads, err := w.leadsTo(name)
	switch {
	case isGone(err):
		return noEntry, nil
	case err != nil:
		return noParent, err
	case paths.EqualText(leads, strings.TrimSuffix(target, `\`)):
		return sameTarget, nil
	}
	return another, nil
}

// leadsTo returns a link's target without a last backslash; "" for any other entry.
func (w *walk) leadsTo(name string) (string, error) {
	info, err := w.stat(name)
	if err != nil || !info.IsReparse() {
		return "", err
	}
	link, err := readReparse(w.dir, name)
	if isErrno(err, win32.ErrorNotAReparsePoint) {
		return "", nil
	}
	if err != nil {
		return "", failed(err, "read where %s leads", w.child(name))
	}
	return strings.TrimSuffix(linkTarget(w.at, link), `\`), nil
}

// mayLink rejects a path at which a link cannot be made, before any other step of
// the mount.
func (s smb) mayLink(ctx context.Context, path paths.Path, target string) error {
	at, err := s.atLink(ctx, path, target)
	switch {
	case err != nil:
		return err
	case at == noParent:
		return fmt.Errorf("%w: the directory of the link %s does not exist", backend.ErrNotFound, path)
	case at == another:
		return fmt.Errorf("%w: %s exists already, and is not a link to %s; remove it, or choose another path",
			backend.ErrExists, path, target)
	}
	return nil
}

func (s smb) makeLink(ctx context.Context, path paths.Path, target string) error {
	w, err := s.walk(path)
	if err != nil {
		return err
	}
	defer w.close()
	name, err := w.toParent(ctx)
	if err != nil {
		return err
	}
	return w.link(name, target)
}

// removeLink removes a mount's link, and no other entry at its path. It waits for a link
// that another program has open, and inspects it each time.
func (s smb) removeLink(ctx context.Context, path paths.Path, target string) error {
	var err error
	_, ended := poll(ctx, pendingLimit, func() (bool, error) {
		err = s.tryRemoveLink(ctx, path, target)
		return !isErrno(err, win32.ErrorSharingViolation), nil
	})
	if ended != nil {
		return fmt.Errorf("remove the link %s: %w: %w", path, ended, err)
	}
	return err
}

func (s smb) tryRemoveLink(ctx context.Context, path paths.Path, target string) error {
	at, err := s.atLink(ctx, path, target)
	if err != nil || at != sameTarget {
		return err
	}
	w, err := s.walk(path)
	if err != nil {
		return err
	}
	defer w.close()
	name, err := w.toParent(ctx)
	if err != nil {
		return err
	}
	if err := w.dir.Remove(name); err != nil && !isGone(err) {
		return failed(err, "remove the link %s", path)
	}
	return w.mustBeGone(ctx, name)
}

// inUse returns the holders of a mapping whose links still exist: a driver may have
// removed one by the filesystem group, which does not know mappings. A link that
// cannot be inspected counts as existing.
func (s smb) inUse(ctx context.Context, r smbRecord) []string {
	var used []string
	for _, local := range r.Holders {
		if local == "" || s.leadsTo(ctx, local, r.Share) {
			used = append(used, local)
		}
	}
	return used
}

func (s smb) leadsTo(ctx context.Context, local, share string) bool {
	path, err := s.rules.Target("local path", local)
	if err != nil {
		return false // the roots have changed: it cannot be used through this proxy
	}
	w, err := s.walk(path)
	if err != nil {
		return true
	}
	defer w.close()
	name, err := w.toParent(ctx)
	var leads string
	if err == nil {
		leads, err = w.leadsTo(name)
	}
	if err != nil {
		return !isGone(err)
	}
	leads += `\`
	return len(leads) > len(share) && paths.EqualText(leads[:len(share)+1], share+`\`)
}
