//go:build !linux

package api

import (
	"fmt"
	"net"
	"runtime"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// peerOf cannot tell on this system, and nobody is let in.
func peerOf(*net.UnixConn) (peer, error) {
	return peer{}, fmt.Errorf("who connected, on %s: %w", runtime.GOOS, backend.ErrUnsupported)
}
