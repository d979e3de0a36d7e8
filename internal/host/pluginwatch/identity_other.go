//go:build !linux && !windows

package pluginwatch

import (
	"errors"
	"io/fs"
	"os"
)

// Identity distinguishes a file from another one that later has the same path.
type Identity struct {
	modified int64 // nanoseconds since 1970
}

// Identify reports whether a path is a socket, and which.
func Identify(path string) (Identity, bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Identity{}, false, nil
	case err != nil:
		return Identity{}, false, err
	}
	return Identity{modified: info.ModTime().UnixNano()}, info.Mode()&fs.ModeSocket != 0, nil
}
