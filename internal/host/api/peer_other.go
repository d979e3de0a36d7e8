//go:build !linux

package api

import (
	"errors"
	"fmt"
	"net"
	"runtime"
)

// peerOf cannot tell on this system, and nobody is let in.
func peerOf(*net.UnixConn) (peer, error) {
	return peer{}, fmt.Errorf("who connected, on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
