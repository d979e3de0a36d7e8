// Package winpath knows how Kubernetes spells paths of Windows. It only looks at
// the text, so it is the same on every system; what a path leads to is for
// csi-proxy to judge.
package winpath

import "strings"

// Normalize is the kubelet's NormalizePath (NormalizeWindowsPath in the KEP of
// CSI on Windows): every slash becomes a backslash, and a path that is rooted but
// names no drive is on c:. The kubelet makes such paths by joining its own
// directory with names; so does fsnotify. A path that begins with two backslashes
// names a share or a device and stays what it is.
func Normalize(path string) string {
	path = strings.ReplaceAll(path, "/", `\`)
	if strings.HasPrefix(path, `\`) && !strings.HasPrefix(path, `\\`) {
		path = "c:" + path
	}
	return path
}

// IsAbs tells whether a path, once normalised, names a drive and a place on it
// from its root.
func IsAbs(path string) bool {
	path = Normalize(path)
	return len(path) >= 3 && isLetter(path[0]) && path[1:3] == `:\`
}

// Join appends names to a directory of a normalised path.
func Join(directory string, names ...string) string {
	return strings.Join(append([]string{strings.TrimRight(directory, `\`)}, names...), `\`)
}

// Dir is the directory that a normalised path is in; "" when it has none.
func Dir(path string) string {
	at := strings.LastIndexByte(path, '\\')
	if at < 0 {
		return ""
	}
	if at == 2 && path[1] == ':' {
		return path[:3] // the root of the drive
	}
	return path[:at]
}

// Within tells whether a path is the directory or lies below it. Windows takes
// upper and lower case for the same, and whole names are compared: C:\ab is not
// within C:\a.
func Within(directory, path string) bool {
	directory, path = strings.TrimRight(Normalize(directory), `\`), strings.TrimRight(Normalize(path), `\`)
	if len(path) < len(directory) || !strings.EqualFold(path[:len(directory)], directory) {
		return false
	}
	return len(path) == len(directory) || path[len(directory)] == '\\'
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
