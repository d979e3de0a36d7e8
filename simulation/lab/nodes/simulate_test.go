//go:build simulate

package nodes_test

import (
	"testing"

	"github.com/holdfast-csi/holdfast/simulation/lab/kube"
)

// TestSimulate runs a seed. It has a build tag, since a seed repeats only in a binary with the
// overlay, which `make simulate` builds: without it, a failure could not be repeated.
func TestSimulate(t *testing.T) { kube.Simulate(t, "nodes") }
