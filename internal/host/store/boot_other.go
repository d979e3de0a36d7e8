//go:build !linux

package store

import (
	"errors"
	"fmt"
	"runtime"
)

// BootID is not known on this system.
func BootID() (string, error) {
	return "", fmt.Errorf("the boot id on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
