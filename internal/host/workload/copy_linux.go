package workload

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// Copy packs what is at a path of the container into a tar stream, which the session's Stdout
// gets, or unpacks the stream of its Stdin there. Stderr gets a line for each thing that is
// left out. It has the rights of the container's user, sees what the container's processes
// see, and executes nothing in there. When the context ends, it removes what is unfinished.
func (s Shim) Copy(ctx context.Context, container Container, what Copy, session Session) error {
	shim, err := s.running()
	if err != nil {
		return err
	}
	defer func() { _ = shim.Close() }()
	root, err := rootOf(shim)
	if err != nil {
		return fmt.Errorf("open the container's root: %w", err)
	}
	defer func() { _ = root.Close() }()
	stdio, err := openStdio(shim, container, session)
	if err != nil {
		return err
	}
	defer stdio.close()
	code, err := s.serve(ctx, root, stdio, inside.Order{Container: container, Copy: &what}, session)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case code != 0:
		return fmt.Errorf("the copy's process ended with code %d", code)
	}
	return nil
}

// copyEnvironment bounds the memory of a copy, which allocates for each file.
func copyEnvironment() []string { return []string{"GOMEMLIMIT=64MiB", "GOMAXPROCS=2"} }

// rootOf opens the root directory of the container whose shim this is.
func rootOf(shim *pidfd.Process) (*os.File, error) {
	pid := strconv.Itoa(shim.PID())
	descriptor, err := unix.Open("/proc/"+pid+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	root := os.NewFile(uintptr(descriptor), "root")
	// The process ID may have been used again before the open.
	if stat, err := pidfd.StatOf(pid); err != nil || stat.Start != shim.Start() {
		_ = root.Close()
		return nil, ErrNotRunning
	}
	return root, nil
}
