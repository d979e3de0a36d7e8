//go:build !linux

package blockdev

import (
	"context"
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func unsupported() error {
	return fmt.Errorf("loop devices: %w on this system", backend.ErrUnsupported)
}

// AttachLoop is for Linux.
func AttachLoop(context.Context, LoopConfig) (*Loop, error) { return nil, unsupported() }

// LoopsOf is for Linux.
func LoopsOf(*os.File) ([]Loop, error) { return nil, unsupported() }

// Close does nothing.
func (l *Loop) Close() error { return nil }

// Open is for Linux.
func (l *Loop) Open() error { return unsupported() }

// SetCapacity is for Linux.
func (l *Loop) SetCapacity() (int64, error) { return 0, unsupported() }

// SetDiscard is for Linux.
func (l *Loop) SetDiscard(bool) error { return unsupported() }

// SetReadOnly is for Linux.
func (l *Loop) SetReadOnly(bool) error { return unsupported() }

// Detach is for Linux.
func (l *Loop) Detach() error { return unsupported() }

// Number is for Linux.
func Number(*os.File) (uint64, error) { return 0, unsupported() }
