//go:build !linux

package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
)

// At implements Mounts.
func (KernelMounts) At(string, bool) (PathInfo, error) {
	return PathInfo{}, fmt.Errorf("find a mounted volume on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func groupOf(fs.FileInfo) (int, bool) { return 0, false }
