package cluster

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// endTimeout is how long the kernel gets to end a cluster's processes and to
// unmount what they had mounted.
const endTimeout = 2 * time.Minute

// Down ends the cluster of a state directory, in any state, and removes all of it but
// its logs. Without a cluster it does nothing.
func Down(dir string) error {
	l := layout(dir)
	there, err := l.hasRecord()
	if err != nil || !there {
		return err
	}
	r, err := readRecord(l)
	if err != nil {
		return fmt.Errorf("%w: end its processes by hand and remove the directory", err)
	}
	// With the supervisor end all processes, mounts and network devices.
	if err := r.Supervisor.kill(endTimeout); err != nil {
		return err
	}
	if err := r.clean(l); err != nil {
		return fmt.Errorf("cluster: %s is ended, but something of it is left; `down` may be repeated: %w", dir, err)
	}
	return l.remove()
}

// clean removes the cluster's parts outside of the supervisor. An earlier Down that was
// interrupted may have done some of the steps.
func (r record) clean(l layout) error {
	return errors.Join(
		detachLoops(l.path("nodes")),
		r.unplugMachine(),
		removeControlGroup(r.controlGroup()),
		restoreSysctls(r.Sysctls),
	)
}

// remove deletes the state. The record goes last: with it, Down would not come
// back for the rest.
func (l layout) remove() error {
	for _, name := range []string{"nodes", "etcd", "credentials", "config", "control.sock", "kubeconfig"} {
		if err := os.RemoveAll(l.path(name)); err != nil {
			return fmt.Errorf("cluster: remove the state: %w", err)
		}
	}
	return os.Remove(l.record())
}
