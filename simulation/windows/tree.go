package windows

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// longestName is in UTF-16 units.
const longestName = 255

// node is a file or directory.
type node struct {
	id         uint64
	fs         *filesystem
	parent     *node // nil for a root, and for a removed node
	name       string
	short      string // its name of the form 8.3, if it has one as well
	dir        bool
	attributes uint32 // in addition to directory and reparse point
	size       int64
	tag        uint32
	reparse    []byte
	children   map[string]*node // by folded names, long and short ones

	pins    int  // handles that share no deletion
	open    int  // handles here and below
	pending bool // removed, and there until its last handle is closed
}

// fold is how NTFS compares names: unit by unit in upper case. It knows no other
// equivalence: the Kelvin sign is not a K. Half of a surrogate pair stays as it is.
func fold(name string) string {
	if utf8.ValidString(name) {
		return strings.Map(unicode.ToUpper, name)
	}
	var folded []byte
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 {
			folded = append(folded, name[0])
		} else {
			folded = utf8.AppendRune(folded, unicode.ToUpper(r))
		}
		name = name[size:]
	}
	return string(folded)
}

// checkName rejects a text that cannot be one component of a path of the kernel. Names that
// Win32 would trim or take for devices are valid.
func checkName(name string) error {
	bad := name == "" || name == "." || name == ".." || len(utf16.Encode([]rune(name))) > longestName ||
		strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || strings.ContainsRune(`\/:*?"<>|`, r) })
	if bad {
		return win32.ErrorInvalidName
	}
	return nil
}

func (n *node) info() win32.FileInfo {
	info := win32.FileInfo{Name: n.name, Attributes: n.attributes, ReparseTag: n.tag}
	if n.dir {
		info.Attributes |= win32.FileAttributeDirectory
	}
	if n.reparse != nil {
		info.Attributes |= win32.FileAttributeReparsePoint
	}
	if info.Attributes == 0 {
		info.Attributes = win32.FileAttributeArchive
	}
	return info
}

// child finds an entry by its name, long or short.
func (n *node) child(name string) (*node, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	child, ok := n.children[fold(name)]
	switch {
	case !ok:
		return nil, win32.ErrorFileNotFound
	case child.pending:
		return nil, win32.ErrorDeletePending
	}
	return child, nil
}

// list returns the children in the order of NTFS.
func (n *node) list() []*node {
	var list []*node
	for key, child := range n.children {
		if key == fold(child.name) {
			list = append(list, child)
		}
	}
	slices.SortFunc(list, func(a, b *node) int { return strings.Compare(fold(a.name), fold(b.name)) })
	return list
}

// make makes a file or directory in n.
func (m *Machine) make(n *node, name string, dir bool) (*node, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := n.fs.writable(); err != nil {
		return nil, err
	}
	if n.reparse != nil {
		return nil, win32.ErrorStoppedOnSymlink
	}
	switch existing := n.children[fold(name)]; {
	case existing == nil:
	case existing.pending:
		return nil, win32.ErrorDeletePending
	default:
		return nil, win32.ErrorAlreadyExists
	}
	m.nodes++
	child := &node{id: m.nodes, fs: n.fs, dir: dir}
	if dir {
		child.children = map[string]*node{}
	}
	n.add(child, name)
	return child, nil
}

// add puts a node into n under a name.
func (n *node) add(child *node, name string) {
	child.parent, child.name, child.short = n, name, ""
	n.children[fold(name)] = child
	if n.fs.shortNames && !isShort(name) {
		child.short = n.shortName(name)
		n.children[child.short] = child
	}
}

// drop takes a node out of its directory.
func (n *node) drop() {
	delete(n.parent.children, fold(n.name))
	if n.short != "" {
		delete(n.parent.children, n.short)
	}
	n.parent = nil
}

// isShort reports whether a name has the form 8.3 itself.
func isShort(name string) bool {
	base, extension, _ := strings.Cut(name, ".")
	return base != "" && len(base) <= 8 && len(extension) <= 3 &&
		name == shortRunes(base)+strings.TrimPrefix(name, base) &&
		extension == shortRunes(extension)
}

// shortRunes drops and replaces the characters that a short name does not have.
func shortRunes(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '.':
			return -1
		case r > unicode.MaxASCII || strings.ContainsRune("+,;=[]", r):
			return '_'
		}
		return r
	}, text)
}

// shortName is a name of the form 8.3 that is free in n.
func (n *node) shortName(name string) string {
	base, extension := name, ""
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		base, extension = name[:i], "."+shortRunes(name[i+1:])
	}
	base = shortRunes(base)
	for i := 1; ; i++ {
		tail := fmt.Sprintf("~%d", i)
		short := fold(base[:min(len(base), 8-len(tail))] + tail + extension[:min(len(extension), 4)])
		if n.children[short] == nil {
			return short
		}
	}
}

// remove removes a file, an empty directory, or a reparse point itself. Handles
// that share no deletion keep it; others outlive it, and its name goes at once
// (FILE_DISPOSITION_POSIX_SEMANTICS), or with Options.DeletePending with the last
// of them.
func (m *Machine) remove(n *node) error {
	if err := n.fs.writable(); err != nil {
		return err
	}
	switch {
	case n.parent == nil:
		return win32.ErrorAccessDenied
	case n.pins > 0:
		return win32.ErrorSharingViolation
	case len(n.children) > 0:
		return win32.ErrorDirNotEmpty
	}
	delete(m.mounted, n)
	if m.options.DeletePending && n.open > 0 {
		n.pending = true
		return nil
	}
	n.fs.used -= n.fs.clustersOf(n.size)
	n.parent.count(-n.open) // handles that share its deletion outlive it
	n.drop()
	return nil
}

// rename moves a node; NTFS refuses it for a directory in which something is open.
func (m *Machine) rename(n, directory *node, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := n.fs.writable(); err != nil {
		return err
	}
	switch other := directory.children[fold(name)]; {
	case n.parent == nil:
		return win32.ErrorAccessDenied
	case n.fs != directory.fs:
		return win32.ErrorNotSameDevice
	case n.pins > 0:
		return win32.ErrorSharingViolation
	case n.dir && n.open > 0:
		return win32.ErrorAccessDenied
	case other != nil && other != n:
		return win32.ErrorAlreadyExists
	case directory.below(n):
		return win32.ErrorInvalidParameter
	}
	n.parent.count(-n.open)
	directory.count(n.open)
	n.drop()
	directory.add(n, name)
	return nil
}

// below reports whether n is in the directory, or is it.
func (n *node) below(directory *node) bool {
	for ; n != nil; n = n.parent {
		if n == directory {
			return true
		}
	}
	return false
}

// setReparse makes an empty directory, or a file, a reparse point
// (FSCTL_SET_REPARSE_POINT); one that is one already must have the same tag.
func (m *Machine) setReparse(n *node, reparse win32.Reparse) error {
	if n.fs.kind != ntfs && n.fs.kind != "ReFS" {
		return win32.ErrorInvalidFunction
	}
	if err := n.fs.writable(); err != nil {
		return err
	}
	data := reparse.Encode()
	_, err := win32.DecodeReparse(data)
	switch {
	case n.reparse != nil && n.tag != reparse.Tag:
		return win32.ErrorReparseTagMismatch
	case len(n.children) > 0:
		return win32.ErrorDirNotEmpty
	case err != nil:
		return win32.ErrorInvalidReparseData
	}
	n.reparse, n.tag = data, reparse.Tag
	delete(m.mounted, n)
	if reparse.IsVolume() {
		m.mounted[n] = struct{}{}
	}
	return nil
}

// target is where a reparse point leads.
func (n *node) target() win32.Reparse {
	reparse, err := win32.DecodeReparse(n.reparse)
	if err != nil {
		return win32.Reparse{Tag: n.tag}
	}
	return reparse
}

// mountedFolders are the directories where the volume is mounted, the oldest first.
func (m *Machine) mountedFolders(v *volume) []*node {
	var list []*node
	for n := range m.mounted {
		if strings.EqualFold(n.target().Target(), v.name) {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *node) int { return int(a.id) - int(b.id) })
	return list
}

// countHandle counts a handle in (by 1) or out (by -1).
func (n *node) countHandle(by int, shareDelete bool) {
	if !shareDelete {
		n.pins += by
	}
	n.count(by)
	if n.pending && n.open == 0 {
		n.vanish()
	}
}

// vanish ends a pending removal.
func (n *node) vanish() {
	n.fs.used -= n.fs.clustersOf(n.size)
	n.pending = false
	n.drop()
}

// count changes how many handles are open here and below.
func (n *node) count(by int) {
	for ; n != nil; n = n.parent {
		n.open += by
	}
}

// forget drops the counts of all handles here and below: they are void.
func (n *node) forget() {
	n.pins, n.open = 0, 0
	for _, child := range n.list() {
		child.forget()
	}
	if n.pending {
		n.vanish()
	}
}

func (fs *filesystem) clustersOf(size int64) int64 {
	return (size + fs.cluster - 1) / fs.cluster * fs.cluster
}

// cloneFilesystem copies a filesystem that is on no volume yet.
func (m *Machine) cloneFilesystem(fs *filesystem) *filesystem {
	clone := *fs
	clone.volume, clone.generation = nil, 0
	clone.root = m.cloneTree(fs.root, &clone, nil)
	return &clone
}

func (m *Machine) cloneTree(n *node, fs *filesystem, parent *node) *node {
	m.nodes++
	clone := *n
	clone.id, clone.fs, clone.parent, clone.pins, clone.open = m.nodes, fs, parent, 0, 0
	if n.dir {
		clone.children = map[string]*node{}
	}
	if _, mounted := m.mounted[n]; mounted {
		m.mounted[&clone] = struct{}{}
	}
	for _, child := range n.list() {
		copied := m.cloneTree(child, fs, &clone)
		clone.children[fold(child.name)] = copied
		if child.short != "" {
			clone.children[child.short] = copied
		}
	}
	return &clone
}
