// Package paths decides which paths csi-proxy works on. A path of a request is text from
// a caller that may be hostile. Rules.Check makes a Path of it, and the rest of the proxy
// takes only such paths. The rules are pure and the same on all systems.
//
// They are about the text of a path. That no link lies on the way is checked when the
// path is walked, by handles.
package paths

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// separator is the only one: Check rejects a slash, so that a path has one spelling.
const separator = `\`

// Rules are the roots that paths must lie below.
type Rules struct {
	// roots are sorted so that one below another comes before it.
	roots []Path
}

// New makes the rules for the kubelet's directory and further ones. A root is an
// absolute path of a directory below a drive: a drive itself would admit every
// path of the machine.
func New(kubeletDir string, workingDirs ...string) (*Rules, error) {
	var rules Rules
	for i, text := range append([]string{kubeletDir}, workingDirs...) {
		field := "working directory"
		if i == 0 {
			field = "kubelet directory"
		}
		root, err := parse(field, Normalize(text))
		if err != nil {
			return nil, err
		}
		if len(root.components) == 0 {
			return nil, invalid(field, text, "a drive admits all that is on it; name a directory")
		}
		path := Path{root: strings.ToUpper(root.drive) + separator + strings.Join(root.components, separator)}
		if !slices.ContainsFunc(rules.roots, path.Equal) {
			rules.roots = append(rules.roots, path)
		}
	}
	slices.SortStableFunc(rules.roots, func(a, b Path) int { return depth(b.root) - depth(a.root) })
	return &rules, nil
}

func depth(text string) int { return strings.Count(text, separator) }

// Roots returns the roots themselves.
func (r *Rules) Roots() []Path { return slices.Clone(r.roots) }

// Check accepts a root or a path below one. Any other text is ErrInvalid; the error names
// the field of the request.
func (r *Rules) Check(field, text string) (Path, error) {
	parsed, err := parse(field, text)
	if err != nil {
		return Path{}, err
	}
	for _, root := range r.roots {
		if below, ok := parsed.below(root); ok {
			return Path{root: root.root, rest: strings.Join(below, separator)}, nil
		}
	}
	return Path{}, invalid(field, text, "it is outside the directories that this proxy works in: "+r.list())
}

func (r *Rules) list() string {
	texts := make([]string, len(r.roots))
	for i, root := range r.roots {
		texts[i] = root.root
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// HoldsRoot reports whether the path is a root, or has one below it. Such a path must not
// be removed, linked or mounted at.
func (r *Rules) HoldsRoot(path Path) bool {
	return slices.ContainsFunc(r.roots, func(root Path) bool {
		return path.Equal(root) || hasPrefix(strings.Split(root.root, separator), strings.Split(path.String(), separator))
	})
}

// Target checks a path at which an entry is made or removed: it must lie below a root,
// and not be a root itself.
func (r *Rules) Target(field, text string) (Path, error) {
	path, err := r.Check(field, text)
	if err != nil {
		return Path{}, err
	}
	if r.HoldsRoot(path) {
		return Path{}, invalid(field, text, "it is, or contains, a root directory of csi-proxy, which is not changed; name a path below it")
	}
	return path, nil
}

// Path is a path that was checked: a root, and the names below it. The zero Path is not
// a path.
type Path struct {
	root string // as configured, without a last separator
	rest string // below it, as the caller wrote it; "" for the root itself
}

// String is the whole path. The root's part is spelled as it was configured.
func (p Path) String() string {
	if p.rest == "" {
		return p.root
	}
	return p.root + separator + p.rest
}

// Root is the path of the root.
func (p Path) Root() string { return p.root }

// IsRoot reports whether the path is a root itself.
func (p Path) IsRoot() bool { return p.rest == "" }

// Components are the names below the root, none for the root itself.
func (p Path) Components() []string {
	if p.rest == "" {
		return nil
	}
	return strings.Split(p.rest, separator)
}

// Name is the last component, "" for a root.
func (p Path) Name() string { return p.rest[strings.LastIndex(p.rest, separator)+1:] }

// Equal reports whether both are one path, without case.
func (p Path) Equal(other Path) bool { return EqualText(p.String(), other.String()) }

// EqualText reports whether Windows takes two names for the same, or two paths that
// differ in nothing but case.
func EqualText(a, b string) bool { return fold(a) == fold(b) }

// Key is the same text for all spellings of the path, for use in a map.
func (p Path) Key() string { return fold(p.String()) }

// invalid returns an error with the field, the value and the action. The value is quoted
// and truncated: a caller can send any text.
func invalid(field, text, reason string) error {
	return fmt.Errorf("%w: %s %.300q: %s", backend.ErrInvalid, field, text, reason)
}
