// Package tartree packs files and directory trees into tar streams, and unpacks them, for
// `holdfast cp`. The tree that is packed and the stream that is unpacked may both belong to
// an attacker: names lead nowhere but below the directory that was opened, a file is written
// under a temporary name, and memory does not grow with the tree.
//
// It never opens a path by itself. Its callers open the file or the directory: in a
// container, with the rights of the container.
package tartree

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The bounds of a tree. Each level costs two descriptors.
const (
	// maximumPath is PATH_MAX of Linux without its end.
	maximumPath  = 4095
	maximumDepth = 256
)

// Whole is the name of a stream's top if its names have no common first part.
const Whole = "."

// Progress counts what was done. A nil function is valid.
type Progress func(bytes int64)

func (p Progress) add(bytes int64) {
	if p != nil {
		p(bytes)
	}
}

// cleanName checks a name of a stream, and returns it without "." and double slashes.
func cleanName(name string) (string, error) {
	words := strings.Split(name, "/")
	switch {
	case name == "":
		return "", errors.New("an entry has no name")
	case len(name) > maximumPath:
		return "", fmt.Errorf("the name %.100q… has %d bytes; %d at most", name, len(name), maximumPath)
	case len(words) > maximumDepth:
		return "", fmt.Errorf("the name %.100q… is more than %d directories deep", name, maximumDepth)
	case strings.HasPrefix(name, "/"), slices.Contains(words, ".."):
		return "", fmt.Errorf("the name %q leads out of the target", name)
	}
	clean := path.Clean(name)
	if !filepath.IsLocal(filepath.FromSlash(clean)) || strings.ContainsRune(clean, 0) {
		return "", fmt.Errorf("the name %q cannot be a file's on this system", name)
	}
	return clean, nil
}

// below returns what a name has below top.
func below(name, top string) (string, error) {
	if top == Whole {
		return name, nil
	}
	rest, ok := strings.CutPrefix(name+"/", top+"/")
	if !ok {
		return "", fmt.Errorf("the name %q is not below %q", name, top)
	}
	return path.Clean(rest), nil
}
