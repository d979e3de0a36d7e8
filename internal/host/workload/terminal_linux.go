package workload

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// openTerminal makes a terminal among those of the container whose shim this is.
func openTerminal(shim *pidfd.Process, container Container) (*stdio, error) {
	master, err := openMultiplexer(shim)
	if err != nil {
		return nil, fmt.Errorf("make a terminal in the container: %w", err)
	}
	peer, err := openPeer(master, int(container.UID))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a terminal in the container: %w", err), master.Close())
	}
	return &stdio{child: [3]*os.File{peer, peer, peer}, own: [3]*os.File{master, master}, master: master}, nil
}

// openMultiplexer opens a new terminal's master in the container's /dev/pts. The container
// may have put anything at that path: nothing is opened that is not a multiplexer
// (pts(4), the device 5:2), and no link leads out of the container.
func openMultiplexer(shim *pidfd.Process) (*os.File, error) {
	root, err := rootOf(shim)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	path, err := unix.Openat2(int(root.Fd()), "dev/pts/ptmx", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open /dev/pts/ptmx: %w", err)
	}
	defer func() { _ = unix.Close(path) }()
	var stat unix.Stat_t
	if err := unix.Fstat(path, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != unix.Mkdev(5, 2) {
		return nil, errors.New("/dev/pts/ptmx is not the multiplexer of terminals")
	}
	master, err := unix.Open("/proc/self/fd/"+strconv.Itoa(path), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(master), "ptmx"), nil
}

// openPeer opens the side of the command, which belongs to its user.
func openPeer(master *os.File, uid int) (*os.File, error) {
	connection, err := master.SyscallConn()
	if err != nil {
		return nil, err
	}
	peer := -1
	var failed error
	err = connection.Control(func(descriptor uintptr) {
		if failed = unix.IoctlSetPointerInt(int(descriptor), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		peer, failed = openPeerOf(descriptor)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(peer), "terminal")
	if err := unix.Fchown(peer, uid, -1); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// openPeerOf is ioctl_tty(2), TIOCGPTPEER: without a path, which the container could change.
func openPeerOf(master uintptr) (int, error) {
	peer, _, number := unix.Syscall(unix.SYS_IOCTL, master, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if number != 0 {
		return -1, number
	}
	return int(peer), nil
}

// resize sets the terminal's size, which the kernel reports to the command.
func (s *stdio) resize(size Size) {
	if s.master == nil {
		return
	}
	connection, err := s.master.SyscallConn()
	if err != nil {
		return
	}
	_ = connection.Control(func(descriptor uintptr) { // of a terminal that has ended, nothing is left to resize
		_ = unix.IoctlSetWinsize(int(descriptor), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	})
}

// withTerminal adds the type of the terminal to an environment that names none.
func withTerminal(environment []string) []string {
	for _, variable := range environment {
		if strings.HasPrefix(variable, "TERM=") {
			return environment
		}
	}
	return append(environment, "TERM=xterm")
}
