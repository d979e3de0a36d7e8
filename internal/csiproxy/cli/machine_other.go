//go:build !windows

package cli

import (
	"errors"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

func nativeMachine() (win32.Machine, error) { return win32.Machine{}, errors.ErrUnsupported }
