//go:build !linux

package workload

import (
	"context"
	"errors"
)

// Exec needs Linux.
func (s Shim) Exec(context.Context, Container, Session) (int, error) {
	return 0, errors.ErrUnsupported
}

// Copy needs Linux.
func (s Shim) Copy(context.Context, Container, Copy, Session) error { return errors.ErrUnsupported }
