package connlimit

import (
	"net"

	"golang.org/x/sys/unix"
)

// processOf is the process that connected (unix(7), SO_PEERCRED). A process outside of this
// one's PID namespace has the number 0 (pid_namespaces(7)): to a driver in a container, the
// kubelet and all sidecars. They cannot be told apart.
func processOf(c *net.UnixConn) (id int, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var credentials *unix.Ucred
	failed := raw.Control(func(descriptor uintptr) {
		credentials, err = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if failed != nil || err != nil {
		return 0, false
	}
	return int(credentials.Pid), credentials.Pid != 0
}
