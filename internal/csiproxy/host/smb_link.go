package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

// place is what is at the path of a mount's link.
type place int

const (
	nothing place = iota
	ourLink       // to the remote path in question
	another       // anything else
)

// atLink looks at a link's path, following nothing. Where the way there is
// missing, nothing is there.
func (s smb) atLink(ctx context.Context, path paths.Path, target string) (place, error) {
	w, err := s.walk(path)
	if err != nil {
		return another, err
	}
	defer w.close()
	name, err := w.toParent(ctx)
	if isGone(err) {
		return nothing, nil
	}
	if err != nil {
		return another, err
	}
	info, err := w.stat(name)
	switch {
	case isGone(err):
		return nothing, nil
	case err != nil:
		return another, err
	case w.sameLink(info, name, target) == nil:
		return ourLink, nil
	}
	return another, nil
}

// mayLink refuses a place that a link cannot be made at, before anything else is
// done for the mount (D-10).
func (s smb) mayLink(ctx context.Context, path paths.Path, target string) error {
	w, err := s.walk(path)
	if err != nil {
		return err
	}
	defer w.close()
	name, err := w.toParent(ctx)
	if err != nil {
		return err
	}
	info, err := w.stat(name)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.sameLink(info, name, target); err != nil {
		return fmt.Errorf("%w: %s is there already: %v; remove it, or choose another path", backend.ErrExists, path, err)
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

// removeLink removes a mount's link, and nothing else that may be in its place.
func (s smb) removeLink(ctx context.Context, path paths.Path, target string) error {
	at, err := s.atLink(ctx, path, target)
	if err != nil || at != ourLink {
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
	return w.mustBeGone(name)
}

// standing are the holders of a mapping whose links are still there: a driver may
// have removed one by the filesystem group, which knows nothing of mappings. One
// that cannot be looked at counts.
func (s smb) standing(ctx context.Context, r smbRecord) []string {
	var standing []string
	for _, local := range r.Holders {
		if local == "" || s.stands(ctx, local, r.Share) {
			standing = append(standing, local)
		}
	}
	return standing
}

func (s smb) stands(ctx context.Context, local, share string) bool {
	path, err := s.rules.Target("local path", local)
	if err != nil {
		return false // the roots have changed: nobody can use it through this proxy
	}
	w, err := s.walk(path)
	if err != nil {
		return true
	}
	defer w.close()
	name, err := w.toParent(ctx)
	if err == nil {
		_, err = w.stat(name)
	}
	if err != nil {
		return !isGone(err)
	}
	link, err := readReparse(w.dir, name)
	if err != nil {
		return false // no link
	}
	target := strings.TrimSuffix(linkTarget(w.at, link), `\`) + `\`
	return len(target) > len(share) && paths.EqualText(target[:len(share)+1], share+`\`)
}
