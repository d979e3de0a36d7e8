package host

import (
	"os/exec"
	"testing"
)

// A process that was killed and whose parent has not waited for it uses no
// volume any more.
func TestHasEnded(t *testing.T) {
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	pid := int32(command.Process.Pid) //nolint:gosec // a process number is small
	start, err := startOfProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if hasEnded(pid, start) {
		t.Error("the process runs, and is reported as ended")
	}
	if !hasEnded(pid, start+1) {
		t.Error("another process of that number is taken for it")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := awaitProcess(t.Context(), pid, start); err != nil {
		t.Fatal(err)
	}
	if !hasEnded(pid, start) {
		t.Error("it was killed, and is taken to run")
	}
	_ = command.Wait()
	if !hasEnded(pid, start) {
		t.Error("the process ended, and is reported as running")
	}
}
