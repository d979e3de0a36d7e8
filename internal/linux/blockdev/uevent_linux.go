package blockdev

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/kernel"
)

// uevents are the kernel's events about loop devices (netlink(7),
// NETLINK_KOBJECT_UEVENT). The kernel queues the event of a change before the system
// call that made the change returns: once a file was attached or detached, the event is
// there. See announcesAttachments for the kernels that leave out the first.
type uevents struct {
	fd     int
	buffer [ueventSize]byte
}

const (
	kernelGroup = 1       // the other group has what udev adds to the events
	ueventSize  = 8 << 10 // bytes; the kernel's own limit is 2 KiB of variables
	// provingDevice is /dev/null. An event of it is harmless: `udevadm trigger` causes one
	// at each boot.
	provingDevice = "/sys/class/mem/null/uevent"
)

// announcesAttachments reports whether the kernel sends an event when a device gets a
// file. From LOOP_CONFIGURE (Linux 5.8) to Linux 6.14 it suppressed all events of the
// device meanwhile and sent none afterwards (fixed by "loop: properly send KOBJ_CHANGED
// uevent for disk device", also in some stable releases). udev asks for one, but later.
func announcesAttachments() bool { return kernel.AtLeast(6, 15) }

// subscribe opens a socket for events and proves that they arrive, with an event that
// it asks the kernel for: a process in a user namespace gets none (lib/kobject_uevent.c,
// uevent_net_init). The error is the reason why there are none.
func subscribe() (*uevents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open a socket for events of devices: %w", err)
	}
	u := &uevents{fd: fd}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup})
	if err == nil {
		err = u.prove()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to events of devices: %w", err), u.close())
	}
	return u, nil
}

// prove has the kernel send an event with an ID (Documentation/ABI/testing/sysfs-uevent)
// and looks for it among the events that wait.
func (u *uevents) prove() error {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	id := fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
	if err := os.WriteFile(provingDevice, []byte("change "+id), 0); err != nil {
		return err
	}
	for {
		message, err := u.receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		if message == nil && err == nil {
			return errors.New("an event that was asked for did not arrive")
		}
		if bytes.Contains(message, []byte("\x00SYNTH_UUID="+id+"\x00")) {
			return nil
		}
	}
}

// changed names the loop devices of the events that wait. lost: there were more than
// the socket holds.
func (u *uevents) changed() (names []string, lost bool, err error) {
	for {
		message, err := u.receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost = true
		case err != nil:
			return nil, true, err
		case message == nil:
			return names, lost, nil
		default:
			if name, ok := loopOfEvent(message); ok {
				names = append(names, name)
			}
		}
	}
}

// receive returns the next event, nil if none waits. ENOBUFS: some were lost.
func (u *uevents) receive() ([]byte, error) {
	n, err := retried(func() (int, error) {
		n, _, err := unix.Recvfrom(u.fd, u.buffer[:], 0)
		return n, err
	})
	if errors.Is(err, unix.EAGAIN) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return u.buffer[:n], nil
}

func (u *uevents) close() error { return unix.Close(u.fd) }

// loopOfEvent reads the name of a loop device from an event, which begins with
// "change@/devices/virtual/block/loop3". Events of partitions are not of interest.
func loopOfEvent(message []byte) (name string, ok bool) {
	header, _, _ := bytes.Cut(message, []byte{0})
	_, device, found := bytes.Cut(header, []byte{'@'})
	directory, name := path.Split(string(device))
	_, isLoop := loopIndex(name)
	return name, found && isLoop && path.Base(directory) == "block"
}
