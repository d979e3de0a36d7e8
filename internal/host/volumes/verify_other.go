//go:build !linux

package volumes

import (
	"fmt"
	"io/fs"
	"runtime"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func verifyPublished(string, bool) error {
	return fmt.Errorf("look whether a volume is published on %s: %w", runtime.GOOS, backend.ErrUnsupported)
}

func groupOf(fs.FileInfo) (int, bool) { return 0, false }

func isMounted(string) bool { return false }

func deviceAt(string) string { return "" }

func answers(string, bool) error {
	return fmt.Errorf("ask a mounted volume on %s: %w", runtime.GOOS, backend.ErrUnsupported)
}

func isInPlace(string, bool, string) (bool, error) {
	return false, fmt.Errorf("look whether a volume is mounted on %s: %w", runtime.GOOS, backend.ErrUnsupported)
}
