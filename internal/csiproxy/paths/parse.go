package paths

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxUnits is the longest path, in UTF-16 units: MAX_PATH of Windows, which has
	// always been the API's limit.
	maxUnits = 260
	// maxNameUnits is the longest name in NTFS.
	maxNameUnits = 255
)

// parsed is an absolute path of a drive, C: and its components.
type parsed struct {
	drive      string
	components []string
}

// parse takes the one acceptable form, X:\name\name, and one separator behind it.
func parse(field, text string) (parsed, error) {
	if text == "" {
		return parsed{}, invalid(field, text, "it is missing")
	}
	if problem := wholeProblem(text); problem != "" {
		return parsed{}, invalid(field, text, problem)
	}
	p := parsed{drive: text[:2]}
	rest := strings.TrimSuffix(text[3:], separator)
	if rest == "" {
		return p, nil
	}
	p.components = strings.Split(rest, separator)
	for _, name := range p.components {
		if problem := nameProblem(name); problem != "" {
			return parsed{}, invalid(field, text, fmt.Sprintf("the name %.60q in it %s", name, problem))
		}
	}
	return p, nil
}

// below returns the components below a root; false if the path lies elsewhere.
func (p parsed) below(root Path) ([]string, bool) {
	whole := append([]string{p.drive}, p.components...)
	roots := strings.Split(root.root, separator)
	if !hasPrefix(whole, roots) {
		return nil, false
	}
	return whole[len(roots):], true
}

// hasPrefix compares component by component, so that C:\kubelet-evil is not below
// C:\kubelet.
func hasPrefix(components, prefix []string) bool {
	if len(components) < len(prefix) {
		return false
	}
	for i, name := range prefix {
		if fold(name) != fold(components[i]) {
			return false
		}
	}
	return true
}

// wholeProblem returns a fault of the path as a whole: its encoding, its length, its
// beginning.
func wholeProblem(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "it is not valid UTF-8, or has half a surrogate pair"
	case units(text) > maxUnits:
		return fmt.Sprintf("it has %d UTF-16 units; %d is the limit", units(text), maxUnits)
	case strings.Contains(text, "/"):
		return `write \ for /`
	case strings.HasPrefix(text, `\\`):
		return `a share, \\?\ or a device is not a path of a drive; write it as C:\directory`
	case strings.HasPrefix(text, separator):
		return `it has no drive; write it as C:\directory`
	case len(text) < 2 || !isLetter(text[0]) || text[1] != ':':
		return `it is not absolute; write it as C:\directory`
	case len(text) < 3 || text[2] != '\\':
		return `it is relative to a drive's current directory; write it as C:\directory`
	}
	return ""
}

func isLetter(b byte) bool { return 'A' <= b&^0x20 && b&^0x20 <= 'Z' }

func units(text string) (n int) {
	for _, r := range text {
		n += utf16.RuneLen(r)
	}
	return n
}

// nameProblem returns the reason why Windows, or one of its layers, would not take a name
// for the directory entry of exactly that name ("Naming Files, Paths, and Namespaces").
func nameProblem(name string) string {
	switch {
	case name == "":
		return `is empty; write one \ only`
	case name == "." || name == "..":
		return "moves within the path; write the path without it"
	case units(name) > maxNameUnits:
		return fmt.Sprintf("is longer than the %d UTF-16 units of a file system", maxNameUnits)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character"
	case strings.ContainsAny(name, `"*<>?|`):
		return `has one of " * < > ? |, which no name can have`
	case strings.Contains(name, ":"):
		return "has a colon, which names a stream of a file and not a file"
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return "ends with a dot or a blank, which Windows removes; write it without"
	case isShort(name):
		return "may be the short form (8.3) of another; write the long one"
	case isDevice(name):
		return "is a device, with any extension; choose another"
	}
	return ""
}

// isShort reports whether a name has a tilde before a digit, as all short names of NTFS
// have. kubernetes.io~csi is not one.
func isShort(name string) bool {
	for i := 0; i+1 < len(name); i++ {
		if name[i] == '~' && '0' <= name[i+1] && name[i+1] <= '9' {
			return true
		}
	}
	return false
}

// isDevice reports whether the name is one of DOS's devices, which exist in every
// directory. The first dot, the blanks before it and all text after it do not count.
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = fold(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return true
	}
	port, isPort := strings.CutPrefix(stem, "COM")
	if !isPort {
		port, isPort = strings.CutPrefix(stem, "LPT")
	}
	return isPort && utf8.RuneCountInString(port) == 1 && strings.ContainsAny(port, "0123456789¹²³")
}

// fold returns the same text for names that NTFS takes for equal. It converts each UTF-16
// unit separately to upper case, so that it changes nothing beyond the basic plane.
// Unicode's dotless i and long s, whose upper case is in ASCII, have none in $UpCase.
func fold(text string) string {
	return strings.Map(func(r rune) rune {
		upper := unicode.ToUpper(r)
		if r > 0xFFFF || upper > 0xFFFF || (r >= utf8.RuneSelf && upper < utf8.RuneSelf) {
			return r
		}
		return upper
	}, text)
}
