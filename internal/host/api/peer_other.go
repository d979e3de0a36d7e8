//go:build !linux

package api

import (
	"errors"
	"fmt"
	"net"
	"runtime"
)

// peerOf cannot identify a peer on this system: every connection is refused.
func peerOf(*net.UnixConn) (peer, error) {
	return peer{}, fmt.Errorf("who connected, on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
