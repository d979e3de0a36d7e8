//go:build !linux

package local

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Pool exists on Linux only.
type Pool struct{}

// Open is for Linux: there are no loop devices elsewhere.
func Open(context.Context, Options) (*Pool, error) {
	return nil, fmt.Errorf("local pool: %w on this system", backend.ErrUnsupported)
}

// Controller returns nil: there are no pools on this system.
func (p *Pool) Controller() backend.Controller { return nil }

// Node returns nil: there are no pools on this system.
func (p *Pool) Node() backend.Node { return nil }

// Close has nothing to do.
func (p *Pool) Close() error { return nil }

// Remains finds nothing: there are no pools.
func Remains(string) (int, error) { return 0, nil }
