//go:build !windows

package server

import (
	"errors"
	"fmt"
	"runtime"
)

// NewTransport is for the named pipes of this machine, which only Windows has.
func NewTransport() (Transport, error) {
	return nil, fmt.Errorf("named pipes on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
