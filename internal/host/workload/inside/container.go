// Package inside runs inside a container's namespaces, as init of its processes: it
// makes the view, starts the command and, for a container that outlives the host, is
// its shim. It imports few packages: a program's packages are initialized in the order
// of their paths (Go specification, "Program initialization"), so that init here comes
// before most of what the holdfast binary has besides, and a shim has none of that in
// its memory.
package inside

import "time"

// ChildCommand is the hidden command of the holdfast binary that a
// container is started with. It calls Child.
const ChildCommand = "workload-init"

// Mount is a directory (or, for a device, a device node) that appears at a path.
type Mount struct {
	// Source is an absolute path without symbolic links below Trusted.
	Source string
	// SubPath is a directory below Source to show instead; made if missing, as
	// the kubelet does. It cannot lead out of Source.
	SubPath string
	// Target is the absolute path in the workload's view.
	Target   string
	ReadOnly bool
	// Device: Source is a block device node, and Target becomes one.
	Device bool
	// Memory: instead of a source, a read-only filesystem in memory with Files, or what
	// is at SubPath in it.
	Memory bool
	Files  []File
	// File: of a mount in memory, SubPath is a file, and Target becomes one.
	File bool
}

// isFile reports whether the mount appears as a file instead of a directory.
func (m Mount) isFile() bool { return m.Device || m.File }

// File is a file of a mount in memory.
type File struct {
	// Path is below the mount, without "..".
	Path string
	Data []byte
	Mode uint32
	GID  uint32
}

// Container is one process tree to run.
type Container struct {
	// Name is for messages and prefixes.
	Name    string
	Command []string
	Env     []string // NAME=value; nothing is inherited
	// Directory is where the command starts; made of directories that exist.
	Directory string
	Mounts    []Mount
	// Scratch is an existing empty directory that the new root is mounted over,
	// in the container's own namespace only.
	Scratch string
	// Hide are directories of the host. Mounts below them are not mounted in the
	// container, so that it does not keep them busy. Unless it is Direct, the
	// container sees these directories empty, at every path that leads to them.
	Hide []string

	UID, GID uint32
	Groups   []uint32
	// Privileged: the command has every capability and every device of the machine.
	// A Direct one has those of its caller.
	Privileged   bool
	NoNewPrivs   bool
	ReadOnlyRoot bool
	DropAll      bool          // drop every capability that is not kept
	DropCaps     []string      // names without CAP_
	KeepCaps     []string      // may exceed the default ones
	GracePeriod  time.Duration // from the first termination signal to SIGKILL
	// Direct: the command replaces the process that called Run. It has its standard
	// input, and signals are passed on to it at once and without a deadline.
	Direct bool
	// Terminal, with Direct: the command shares the caller's session, so that
	// the terminal is its controlling terminal. The kernel sends the terminal's
	// signals to the command, so the caller does not forward them.
	Terminal bool
}

// confined reports whether the command has no access to the machine's devices and
// settings, and to the paths that the host hides.
func (c Container) confined() bool { return !c.Direct && !c.Privileged }
