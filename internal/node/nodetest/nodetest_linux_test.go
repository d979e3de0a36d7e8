package nodetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// attach attaches file to a loop device and returns its name.
func attach(t *testing.T, file *os.File) string {
	t.Helper()
	control, err := os.Open("/dev/loop-control")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	for range 100 { // another process may attach the free device first
		index, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		name := "loop" + strconv.Itoa(index)
		device, err := os.OpenFile(filepath.Join("/dev", name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(file.Fd())})
		_ = device.Close()
		if err == nil {
			return name
		}
	}
	t.Fatal("no free loop device in 100 tries")
	return ""
}

func TestDetachLoop_onlyADeviceThatIsStillOfTheDirectory(t *testing.T) {
	dir := Dir(t)
	for _, sub := range []string{"own", "other"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	own, other := filepath.Join(dir, "own"), filepath.Join(dir, "other")
	name := attach(t, File(t, own, "data", 1<<20))
	if listed := LoopsBelow(t, own); !slices.Equal(listed, []string{name}) {
		t.Fatalf("the loop devices are %v, not %s", listed, name)
	}

	// Between the listing and the detaching, the device detached itself.
	detachLoop(t, own, name)
	detachLoop(t, own, name)
	if listed := LoopsBelow(t, own); len(listed) != 0 {
		t.Errorf("%v is still attached", listed)
	}

	// And another file got a device that was listed before.
	name = attach(t, File(t, other, "data", 1<<20))
	detachLoop(t, own, name)
	if listed := LoopsBelow(t, other); !slices.Equal(listed, []string{name}) {
		t.Errorf("the other directory's loop devices are %v, not %s", listed, name)
	}
	DetachLoopsBelow(t, other)
	NoLeaks(t, dir)
}

func TestKill_onlyTheProcessThatWasMeant(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	Kill(t, pid, func(int) bool { return false })
	if err := child.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a process that did not match: %v", err)
	}
	Kill(t, pid, func(got int) bool { return got == pid })
	if err := child.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
	Kill(t, pid, func(int) bool { return true }) // it has ended
}
