package windows

import (
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	longestPath = 259 // MAX_PATH without its NUL
	mostLinks   = 63  // reparse points on one path
	startDir    = `C:\Windows\System32`
)

// resolved is the target of a path: a node or a share.
type resolved struct {
	node  *node
	share *share
}

// parsed is a path of Win32, taken apart.
type parsed struct {
	volume     string // \\?\Volume{GUID}\
	letter     byte
	server     string // with share, of a UNC path
	share      string
	components []string
}

// parse takes a path apart as Win32 does (RtlDosPathNameToNtPathName): \\?\ is
// taken literally; in all others / is a separator, empty and dot components go,
// a component loses one dot at its end, and the last loses all dots and blanks.
func parse(path string) (parsed, error) {
	if strings.ContainsRune(path, 0) || path == "" {
		return parsed{}, win32.ErrorInvalidName
	}
	if rest, ok := strings.CutPrefix(path, `\\?\`); ok {
		return parseLiteral(rest)
	}
	if len(utf16.Encode([]rune(path))) > longestPath {
		return parsed{}, win32.ErrorPathNotFound
	}
	path = strings.ReplaceAll(path, "/", `\`)
	if strings.HasPrefix(path, `\\?\`) || strings.HasPrefix(path, `\\.\`) {
		return parsed{}, win32.ErrorInvalidName
	}
	if rest, ok := strings.CutPrefix(path, `\\`); ok {
		return parseShare(rest, trimmed)
	}
	switch {
	case len(path) >= 2 && path[1] == ':':
		if len(path) == 2 || path[2] != '\\' { // relative to the drive's current directory
			path = path[:2] + `\` + path[2:]
		}
	case path[0] == '\\':
		path = startDir[:2] + path
	default:
		path = startDir + `\` + path
	}
	return parseDrive(path, trimmed)
}

func parseLiteral(rest string) (parsed, error) {
	const volumeName = 44 // Volume{8-4-4-4-12}
	exact := func(components []string) ([]string, error) {
		if n := len(components); n > 0 && components[n-1] == "" {
			components = components[:n-1]
		}
		return components, nil
	}
	switch {
	case len(rest) >= 4 && strings.EqualFold(rest[:4], `UNC\`):
		return parseShare(rest[4:], exact)
	case len(rest) > volumeName && isVolumeName(`\\?\`+rest[:volumeName+1]):
		components, err := exact(strings.Split(rest[volumeName+1:], `\`))
		return parsed{volume: `\\?\` + rest[:volumeName+1], components: components}, err
	}
	return parseDrive(rest, exact)
}

func parseShare(rest string, components func([]string) ([]string, error)) (parsed, error) {
	parts := strings.Split(rest, `\`)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return parsed{}, win32.ErrorBadPathname
	}
	below, err := components(parts[2:])
	return parsed{server: parts[0], share: parts[1], components: below}, err
}

func parseDrive(path string, components func([]string) ([]string, error)) (parsed, error) {
	letter := byte(0)
	if len(path) >= 3 && path[1] == ':' && path[2] == '\\' {
		letter = path[0] &^ 0x20
	}
	if letter < 'A' || letter > 'Z' {
		return parsed{}, win32.ErrorPathNotFound
	}
	below, err := components(strings.Split(path[3:], `\`))
	return parsed{letter: letter, components: below}, err
}

// trimmed cleans components as Win32 does.
func trimmed(components []string) ([]string, error) {
	var clean []string
	for i, c := range components {
		switch c {
		case "", ".":
		case "..":
			clean = clean[:max(len(clean)-1, 0)]
		default:
			if i == len(components)-1 {
				c = strings.TrimRight(c, ". ")
			} else if strings.HasSuffix(c, ".") && !strings.HasSuffix(c, "..") {
				c = c[:len(c)-1]
			}
			if c != "" {
				clean = append(clean, c)
			}
		}
	}
	return clean, nil
}

// resolve finds the target of a path, through all reparse points on the way, and
// through the last one with follow.
func (m *Machine) resolve(path string, follow bool) (resolved, error) {
	p, err := parse(path)
	if err != nil {
		return resolved{}, err
	}
	links := 0
	return m.walk(p, follow, &links)
}

func (m *Machine) walk(p parsed, follow bool, links *int) (resolved, error) {
	if p.server != "" {
		return m.remote(p)
	}
	root, err := m.rootOf(p)
	if err != nil {
		return resolved{}, err
	}
	return m.walkFrom(root, p.components, follow, links)
}

// rootOf is the root directory of the path's volume, mounted.
func (m *Machine) rootOf(p parsed) (*node, error) {
	for v := range m.arrived() {
		if p.volume != "" && strings.EqualFold(v.name, p.volume) || p.letter != 0 && v.letter == p.letter {
			fs, err := v.mount()
			if err != nil {
				return nil, err
			}
			return fs.root, nil
		}
	}
	return nil, win32.ErrorPathNotFound
}

func (m *Machine) walkFrom(n *node, components []string, follow bool, links *int) (resolved, error) {
	for i, name := range components {
		last := i == len(components)-1
		if !n.dir {
			return resolved{}, win32.ErrorPathNotFound
		}
		child, err := n.child(name)
		switch {
		case err == win32.ErrorFileNotFound && !last: //nolint:errorlint // our own, never wrapped
			return resolved{}, win32.ErrorPathNotFound
		case err != nil:
			return resolved{}, err
		}
		n = child
		if n.reparse == nil || last && !follow {
			continue
		}
		return m.follow(n, components[i+1:], follow, links)
	}
	return resolved{node: n}, nil
}

// follow continues behind a reparse point.
func (m *Machine) follow(n *node, rest []string, followLast bool, links *int) (resolved, error) {
	if *links++; *links > mostLinks {
		return resolved{}, win32.ErrorCantResolveFilename
	}
	target := n.target()
	if target.Tag != win32.ReparseTagMountPoint && target.Tag != win32.ReparseTagSymlink {
		return resolved{}, win32.ErrorCantAccessFile
	}
	if target.Relative {
		return m.followRelative(n, target.Target(), rest, followLast, links)
	}
	path := target.Target()
	if !strings.HasPrefix(path, `\\`) {
		path = `\\?\` + path
	}
	p, err := parse(path)
	if err != nil {
		return resolved{}, win32.ErrorPathNotFound
	}
	p.components = append(p.components[:len(p.components):len(p.components)], rest...)
	// With something behind it the link is not the last on the path.
	return m.walk(p, followLast || len(rest) == 0, links)
}

// followRelative continues at the directory that the link lies in.
func (m *Machine) followRelative(n *node, target string, rest []string, followLast bool, links *int) (resolved, error) {
	at := n.parent
	var components []string
	for _, c := range strings.Split(target, `\`) {
		switch {
		case c == "" || c == ".":
		case c != "..":
			components = append(components, c)
		case len(components) > 0:
			components = components[:len(components)-1]
		default:
			if at = at.parent; at == nil {
				return resolved{}, win32.ErrorPathNotFound
			}
		}
	}
	return m.walkFrom(at, append(components, rest...), followLast || len(rest) == 0, links)
}

// path is the answer of GetFinalPathNameByHandleW without \\?\: by the drive letter
// of the volume, else by its first mounted folder. ok is false without either.
func (m *Machine) path(n *node) (string, bool) {
	return m.pathWithout(n, map[*filesystem]bool{})
}

func (m *Machine) pathWithout(n *node, seen map[*filesystem]bool) (string, bool) {
	var names []string
	fs := n.fs
	for ; n.parent != nil; n = n.parent {
		names = append(names, n.name)
	}
	slices.Reverse(names)
	if n != fs.root || fs.volume == nil || seen[fs] {
		return "", false
	}
	seen[fs] = true
	defer delete(seen, fs)
	if fs.volume.letter != 0 {
		return string(fs.volume.letter) + `:\` + strings.Join(names, `\`), true
	}
	for _, folder := range m.mountedFolders(fs.volume) {
		if prefix, ok := m.pathWithout(folder, seen); ok {
			return strings.Join(append([]string{prefix}, names...), `\`), true
		}
	}
	return "", false
}
