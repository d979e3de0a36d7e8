//go:build simulate

package host_test

import (
	"os"
	"testing"

	"github.com/holdfast-csi/holdfast/simulation/lab"
	"github.com/holdfast-csi/holdfast/simulation/lab/host"
)

// memory is a filesystem in memory: the store of the host is a real file.
const memory = "/dev/shm"

func world() lab.World {
	options := host.Options{}
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		options.Directory = memory
	}
	return host.World(options)
}

// TestSimulate runs some seeds. For the build tag, see the test of the Kubernetes door.
func TestSimulate(t *testing.T) { lab.Simulate(t, "host", world()) }
