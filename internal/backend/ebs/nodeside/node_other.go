//go:build !linux

package nodeside

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Node exists on Linux only.
type Node struct{ backend.Node }

// New returns ErrUnsupported: only Linux has sysfs.
func New(Options) (*Node, error) {
	return nil, fmt.Errorf("EBS volumes on this node: %w on this system", backend.ErrUnsupported)
}

// Close has nothing to do.
func (n *Node) Close() error { return nil }

// Probe refuses as New does.
func (n *Node) Probe(context.Context) error { return backend.ErrUnsupported }
