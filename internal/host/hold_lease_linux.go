package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// startField is the index of starttime in /proc/PID/stat behind the command's
// name (proc_pid_stat(5), field 22).
const startField = 19

// startOfProcess is when a process began, in clock ticks since the boot:
// together with its number and the boot it names the process for ever.
func startOfProcess(pid int32) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("who asked for the hold: %w", err)
	}
	// The name is in parentheses, and may have any character.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) <= startField {
		return 0, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	return strconv.ParseUint(fields[startField], 10, 64)
}

// awaitProcess returns nil when the process has ended, or the context's error.
// It sleeps until then (pidfd_open(2)).
func awaitProcess(ctx context.Context, pid int32, start uint64) error {
	descriptor, err := unix.PidfdOpen(int(pid), unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	handle := os.NewFile(uintptr(descriptor), "pidfd")
	defer func() { _ = handle.Close() }()
	// The descriptor is of whoever has the number now.
	now, err := startOfProcess(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && now != start {
		return nil
	}
	if err != nil {
		return err
	}
	connection, err := handle.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = handle.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = connection.Read(func(descriptor uintptr) bool {
		events := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}} //nolint:gosec // a descriptor is small
		n, err := unix.Poll(events, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
