package command

import (
	"os/exec"
	"runtime"
	"syscall"
)

// isolate starts the child in its own process group, so that its children end
// with it. It also makes the kernel kill the child when this process dies: an mkfs that
// outlives the driver would write to a device that the restarted driver inspects.
func isolate(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
}

// runOnOneThread keeps the thread that made the child until the child is gone:
// the parent death signal comes when that thread ends, not the process
// (prctl(2), PR_SET_PDEATHSIG).
func runOnOneThread(child *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return child.Run()
}
