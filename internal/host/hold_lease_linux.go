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
	_, start, err := statOfProcess(pid)
	return start, err
}

// statOfProcess also returns the process's state, as in proc_pid_stat(5).
func statOfProcess(pid int32) (state string, start uint64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, fmt.Errorf("who asked for the hold: %w", err)
	}
	// The name is in parentheses, and may have any character.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) <= startField {
		return "", 0, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return fields[0], start, err
}

// hasEnded reports whether a process is gone, or only waits for its parent. A
// process that cannot be asked about is taken to run.
func hasEnded(pid int32, start uint64) bool {
	state, now, err := statOfProcess(pid)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	return now != start || state == "Z" || state == "X"
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
	// The descriptor is that of the process with this number now.
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
