//go:build !linux

package disk

import (
	"fmt"
	"runtime"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Open is for Linux.
func Open(string) (world.Devices, error) {
	return nil, fmt.Errorf("real volumes need loop devices, which %s has not; run without a directory for them",
		runtime.GOOS)
}
