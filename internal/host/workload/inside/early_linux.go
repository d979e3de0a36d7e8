package inside

import "os"

// init makes a shim small and quick: it starts before most packages of the
// holdfast binary are initialized, which cost each container 4 MiB and 20 ms.
// Only a container's own init is process 1 with this command line.
func init() { //nolint:gochecknoinits // see above: later is too late
	if os.Getpid() == 1 && len(os.Args) == 2 && os.Args[1] == ChildCommand {
		os.Exit(Child())
	}
}
