package pluginwatch

import (
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

// spelling is how a system writes paths.
type spelling struct {
	normalize func(string) string
	separator string
	same      func(a, b string) bool
}

// ofUnix takes paths as they are.
func ofUnix() spelling {
	return spelling{normalize: filepath.Clean, separator: "/", same: func(a, b string) bool { return a == b }}
}

// ofWindows has one spelling for what the configuration, fsnotify and the kubelet
// write: with backslashes and a drive. Additions and removals both use it, so that each
// known path can be removed.
func ofWindows() spelling {
	return spelling{
		normalize: func(text string) string {
			text = paths.Normalize(text)
			if len(text) > len(`C:\`) {
				text = strings.TrimRight(text, `\`)
			}
			return text
		},
		separator: `\`, same: paths.EqualText,
	}
}

// within reports whether an event's name is the directory or lies in it.
func (s spelling) within(directory, name string) bool {
	name = s.normalize(name)
	if len(name) > len(directory) && strings.HasPrefix(name[len(directory):], s.separator) {
		name = name[:len(directory)]
	}
	return s.same(directory, name)
}
