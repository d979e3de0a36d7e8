package mount

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// pathMax is PATH_MAX of Linux, with its final zero byte (limits.h). CSI demands the
// system's limit (spec 1.13, "Size Limits").
const pathMax = 4096

// nameMax is NAME_MAX: the limit of a component on every filesystem of Linux.
const nameMax = 255

// Resolver turns the paths of requests into descriptors. A path must be
// absolute and clean and lie in no forbidden directory. Symlinks are followed
// in the name of the kubelet's directory alone, which belongs to the
// administrator; everything below it, and every path elsewhere, must be free
// of them, since a pod may be able to replace it.
type Resolver struct {
	kubeletDir string
	forbidden  []string
}

// NewResolver makes a Resolver. The directories need not exist yet; kubeletDir
// may be empty.
func NewResolver(kubeletDir string, forbidden []string) (*Resolver, error) {
	r := &Resolver{}
	if kubeletDir != "" {
		abs, err := filepath.Abs(kubeletDir)
		if err != nil {
			return nil, fmt.Errorf("kubelet directory %s: %w", kubeletDir, err)
		}
		r.kubeletDir = abs
	}
	for _, dir := range forbidden {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("forbidden directory %s: %w", dir, err)
		}
		r.forbidden = append(r.forbidden, abs)
		if real, err := filepath.EvalSymlinks(abs); err == nil && real != abs {
			r.forbidden = append(r.forbidden, real)
		}
	}
	return r, nil
}

// CheckPath makes the checks (ErrInvalid) that do not read the machine: whether the
// path is absolute, clean and short enough, and where it leads. name is the request's
// field.
func (r *Resolver) CheckPath(name, path string) error {
	var reason string
	switch {
	case path == "":
		reason = "is missing"
	case strings.ContainsRune(path, 0):
		reason = "contains a zero byte"
	case len(path) >= pathMax:
		reason = fmt.Sprintf("is longer than %d bytes", pathMax-1)
	case !filepath.IsAbs(path):
		reason = "is not absolute"
	case filepath.Clean(path) != path:
		reason = "is not clean (.., . or a double or final separator)"
	case filepath.Dir(path) == path:
		reason = "is the root directory"
	case slices.ContainsFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool { return len(name) > nameMax }):
		reason = fmt.Sprintf("has a component longer than %d bytes", nameMax)
	default:
		return r.checkForbidden(name, path)
	}
	return fmt.Errorf("%w: %s %q %s", backend.ErrInvalid, name, abbreviate(path), reason)
}

func (r *Resolver) checkForbidden(name, path string) error {
	for _, dir := range r.forbidden {
		if within(dir, path) {
			return fmt.Errorf("%w: %s %q lies in %s, which contains the data of volumes", backend.ErrInvalid, name, path, dir)
		}
		if within(path, dir) {
			return fmt.Errorf("%w: %s %q would hide %s, which contains the data of volumes",
				backend.ErrInvalid, name, path, dir)
		}
	}
	return nil
}

// within reports whether path is dir or lies below it.
func within(dir, path string) bool {
	return path == dir ||
		strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

func abbreviate(path string) string {
	const most = 256
	if len(path) <= most {
		return path
	}
	return path[:most] + "…"
}
