package unixsocket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOnly sets the mode of the file before bind makes it, so that others cannot
// connect in between: on Linux the file takes the mode of the socket it is bound to
// (unix(7), "Pathname socket ownership and permissions").
func ownerOnly(_, _ string, connection syscall.RawConn) error {
	var failed error
	err := connection.Control(func(descriptor uintptr) {
		failed = unix.Fchmod(int(descriptor), 0o600)
	})
	if err != nil {
		return err
	}
	return failed
}
