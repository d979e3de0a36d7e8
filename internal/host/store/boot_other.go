//go:build !linux

package store

import (
	"fmt"
	"runtime"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// BootID is not known on this system.
func BootID() (string, error) {
	return "", fmt.Errorf("the boot id on %s: %w", runtime.GOOS, backend.ErrUnsupported)
}
