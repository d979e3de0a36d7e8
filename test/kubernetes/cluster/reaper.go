package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper waits for processes, as the first process of a PID namespace must: for those it
// started, whose exit it delivers, and for orphans.
//
// Other code in the process must not wait for children: os/exec's Wait and the reaper
// would reap each other's.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus
}

// newReaper starts to wait; it does so until the process ends.
func newReaper() *reaper {
	r := &reaper{waiting: make(map[int]chan unix.WaitStatus)}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			r.reap()
		}
	}()
	return r
}

// start runs the command. The channel delivers its end, once.
func (r *reaper) start(cmd *exec.Cmd) (<-chan unix.WaitStatus, error) {
	// The reaper must not reap a child before it is registered.
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := make(chan unix.WaitStatus, 1)
	r.waiting[cmd.Process.Pid] = ended
	return ended, nil
}

// reap reaps every child that has ended. One signal may stand for several.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := r.waiting[pid]; ok {
			ended <- status
			delete(r.waiting, pid)
		}
	}
}
