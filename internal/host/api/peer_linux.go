package api

import (
	"fmt"
	"net"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who connected: the credentials are those of the moment
// of connect (socket(7), SO_PEERCRED and SO_PEERGROUPS).
func peerOf(connection *net.UnixConn) (peer, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var found peer
	var failed error
	err = raw.Control(func(descriptor uintptr) {
		credentials, err := unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			failed = fmt.Errorf("who connected: %w", err)
			return
		}
		found = peer{uid: credentials.Uid, pid: credentials.Pid, groups: []uint32{credentials.Gid}}
		groups, err := peerGroups(descriptor)
		if err != nil {
			failed = fmt.Errorf("the groups of who connected: %w", err)
			return
		}
		found.groups = append(found.groups, groups...)
	})
	if err != nil {
		return peer{}, err
	}
	return found, failed
}

// peerGroups are the supplementary groups. If the buffer is too small, the kernel
// returns ERANGE and the number of bytes.
func peerGroups(descriptor uintptr) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4) //nolint:gosec // at most 65,536 groups (credentials(7), NGROUPS_MAX)
		_, _, number := unix.Syscall6(unix.SYS_GETSOCKOPT, descriptor, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		runtime.KeepAlive(groups)
		switch {
		case number == 0:
			return groups[:size/4], nil
		case number != unix.ERANGE || int(size) <= len(groups)*4:
			return nil, number
		}
		groups = make([]uint32, size/4)
	}
}
