// Package workload runs the containers of a pod as processes of this machine.
// A container's image is not used: its processes see the machine's own files,
// in their own mount and process namespaces, with the pod's volumes at their mount
// paths. The machine's filesystems are not changed for that, and mounts inside are not
// visible outside. The containers end with the process that called Run.
package workload

import (
	"io"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// ChildCommand is the hidden command of the holdfast binary that a container is
// started with. It calls Child.
const ChildCommand = inside.ChildCommand

// Container is one process tree to run.
type Container = inside.Container

// Mount is a directory (or, for a device, a device node) that appears at a path.
type Mount = inside.Mount

// File is a file of a mount in memory.
type File = inside.File

// Child is the other side; see inside.Child.
func Child() int { return inside.Child() }

// Streams are where the output of a container goes. A file is handed over as
// it is; anything else is written to as output comes.
type Streams struct {
	Stdout, Stderr io.Writer
	// Stdin is for a container that is Direct.
	Stdin io.Reader
}
