//go:build !linux

package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
)

func verifyPublished(string, bool) error {
	return fmt.Errorf("check whether a volume is published on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func groupOf(fs.FileInfo) (int, bool) { return 0, false }

func isMounted(string) bool { return false }

func deviceAt(string) string { return "" }

func answers(string, bool) error {
	return fmt.Errorf("ask a mounted volume on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func isInPlace(string, bool, string) (bool, error) {
	return false, fmt.Errorf("check whether a volume is mounted on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
