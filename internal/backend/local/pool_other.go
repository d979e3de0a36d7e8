//go:build !linux

package local

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Pool exists on Linux only.
type Pool struct{}

// Open needs Linux, which has loop devices.
func Open(context.Context, Options) (*Pool, error) {
	return nil, fmt.Errorf("local pool: %w on this system", backend.ErrUnsupported)
}

// Controller returns nil: this system has no pools.
func (p *Pool) Controller() backend.Controller { return nil }

// Node returns nil: this system has no pools.
func (p *Pool) Node() backend.Node { return nil }

// Close does nothing.
func (p *Pool) Close() error { return nil }

// Remains returns nothing: this system has no pools.
func Remains(string) (int, error) { return 0, nil }
