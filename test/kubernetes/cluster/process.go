package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// process identifies one process permanently: a pid alone may belong to another process
// by the time that it is read.
type process struct {
	PID int `json:"pid"`
	// Start is when it started, in clock ticks since boot (proc(5), stat, 22).
	Start uint64 `json:"start"`
	// Boot is the boot_id of the machine, since Start counts from each boot.
	Boot string `json:"boot"`
}

// identify reads the identity of a running process.
func identify(pid int) (process, error) {
	start, err := startTime(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := bootID()
	return process{PID: pid, Start: start, Boot: boot}, err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, field 2, is in parentheses and may contain spaces and parentheses.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// open returns a handle (pidfd) of the process, nil if it has ended.
func (p process) open() (*os.Process, error) {
	if p.PID == 0 {
		return nil, nil
	}
	handle, err := os.FindProcess(p.PID) // a pidfd: checked below, used after
	if err != nil {
		return nil, err
	}
	now, err := identify(p.PID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case now == p:
		return handle, nil
	}
	return nil, handle.Release()
}

// running reports whether the process runs. A zombie does not.
func (p process) running() (bool, error) {
	handle, err := p.open()
	if handle == nil || err != nil {
		return false, err
	}
	defer func() { _ = handle.Release() }()
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	after := strings.Fields(string(state[bytes.LastIndexByte(state, ')')+1:]))
	return len(after) > 0 && after[0] != "Z" && after[0] != "X", nil
}

// kill ends the process and waits until it has ended. The first process of a
// PID namespace ends after all others of that namespace.
func (p process) kill(timeout time.Duration) error {
	handle, err := p.open()
	if handle == nil || err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cluster: end process %d: %w", p.PID, err)
	}
	return poll(timeout, fmt.Sprintf("process %d to end", p.PID), func() (bool, error) {
		running, err := p.running()
		return !running, err
	})
}

// poll calls done every 20 ms until it returns true.
func poll(timeout time.Duration, what string, done func() (bool, error)) error {
	deadline := time.Now().Add(timeout)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cluster: waited %v for %s", timeout, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
