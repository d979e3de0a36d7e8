//go:build !linux

package fs

import (
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func unsupported() error {
	return fmt.Errorf("filesystems: %w on this system", backend.ErrUnsupported)
}

// Freeze is for Linux.
func Freeze(*os.File) error { return unsupported() }

// Thaw is for Linux.
func Thaw(*os.File) error { return unsupported() }

// SyncFS is for Linux.
func SyncFS(*os.File) error { return unsupported() }

// Grow is for Linux.
func Grow(*os.File, string, int64) error { return unsupported() }

// Size is for Linux.
func Size(*os.File, string) (int64, error) { return 0, unsupported() }

// ReadStats is for Linux.
func ReadStats(*os.File) (Stats, error) { return Stats{}, unsupported() }

// CanGrowMounted is for Linux.
func CanGrowMounted(string) bool { return false }

// UsableSize is for Linux.
func UsableSize(*os.File) (int64, error) { return 0, unsupported() }
