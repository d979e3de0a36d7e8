package cli

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/native"
)

func nativeMachine() (win32.Machine, error) { return native.New(native.Options{}), nil }
