//go:build !windows

package cli

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	winverify "github.com/holdfast-csi/holdfast/internal/csiproxy/verify"
)

// openMachine is for Windows.
func openMachine(*winverify.Options) (done func(), err error) {
	return nil, fmt.Errorf("%w on this system: run holdfast.exe verify windows on a Windows node; --list works here", backend.ErrUnsupported)
}
