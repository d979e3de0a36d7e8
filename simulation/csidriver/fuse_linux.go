package csidriver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FUSE is a filesystem in user space, as drivers of object stores mount one. It
// has an empty root directory, refuses to change owners and modes, and stays
// mounted when its daemon ends.
type FUSE struct {
	device *os.File
	ended  chan struct{}
}

// The requests of the protocol that are answered with more than an error, and
// the sizes of its messages (linux/fuse.h, version 7.31).
const (
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseStatfs      = 17
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseBatchForget = 42

	fuseHeaderIn  = 40
	fuseHeaderOut = 16
	fuseAttrOut   = 104
	fuseOpenOut   = 16
	fuseStatfsOut = 80
	fuseInitOut   = 64
	fuseReadSize  = 1<<20 + 1<<12
)

// MountFUSE mounts one at a directory. Unmounting it is the caller's duty.
func MountFUSE(target string) (*FUSE, error) {
	// Not blocking, so that Close interrupts a Read.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("holdfast-test", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a FUSE filesystem at %s: %w", target, err), unix.Close(fd))
	}
	// Only now: a descriptor that has no connection yet never becomes readable
	// for a poller that it was given to.
	f := &FUSE{device: os.NewFile(uintptr(fd), "/dev/fuse"), ended: make(chan struct{})}
	go f.serve()
	return f, nil
}

// Kill ends the daemon. The mount stays, and system calls below it fail with
// ENOTCONN.
func (f *FUSE) Kill() {
	_ = f.device.Close() // the second time it is closed already
	<-f.ended
}

func (f *FUSE) serve() {
	defer close(f.ended)
	buffer := make([]byte, fuseReadSize)
	for {
		n, err := f.device.Read(buffer)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue // the request was interrupted before it was read
		}
		if err != nil || n < fuseHeaderIn {
			return // unmounted or killed
		}
		if answer := answerFUSE(buffer[:n]); answer != nil {
			_, _ = f.device.Write(answer) // fails if the caller was interrupted
		}
	}
}

// answerFUSE returns nil for requests that have no answer.
func answerFUSE(request []byte) []byte {
	order := binary.NativeEndian
	var errno unix.Errno
	var body []byte
	switch order.Uint32(request[4:]) {
	case fuseForget, fuseBatchForget:
		return nil
	case fuseInit:
		body = make([]byte, fuseInitOut)
		order.PutUint32(body[0:], 7)
		order.PutUint32(body[4:], 31)
		order.PutUint32(body[20:], 1<<12) // max_write
	case fuseGetattr:
		body = make([]byte, fuseAttrOut)
		order.PutUint64(body[16:], 1)                     // ino
		order.PutUint32(body[16+60:], unix.S_IFDIR|0o755) // mode
		order.PutUint32(body[16+64:], 2)                  // nlink
	case fuseSetattr:
		errno = unix.EPERM
	case fuseStatfs:
		body = make([]byte, fuseStatfsOut)
	case fuseOpendir:
		body = make([]byte, fuseOpenOut)
	case fuseReaddir, fuseReleasedir:
	default:
		errno = unix.ENOSYS
	}
	answer := make([]byte, fuseHeaderOut, fuseHeaderOut+len(body))
	order.PutUint32(answer[0:], uint32(fuseHeaderOut+len(body))) //nolint:gosec // small
	order.PutUint32(answer[4:], uint32(-int32(errno)))           //nolint:gosec // an errno
	copy(answer[8:], request[8:16])                              // unique
	return append(answer, body...)
}
