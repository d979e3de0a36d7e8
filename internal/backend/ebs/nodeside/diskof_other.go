//go:build !linux

package nodeside

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// DiskOf is for Linux.
func DiskOf(_, _ string) (serial, model string, err error) {
	return "", "", fmt.Errorf("%w on this system", backend.ErrUnsupported)
}
