//go:build unix

package cli

import (
	"syscall"
	"testing"
)

// The end of the terminal, or of the process, ends the command; without a terminal, both
// are the command's own signals.
func TestWatchSignals_theEndOfATerminalEndsTheCommand(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		left := make(chan struct{}, 1)
		_, stop := watchSignals(true, func() { left <- struct{}{} })
		if err := syscall.Kill(syscall.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
		<-left
		stop()
		passed, stop := watchSignals(false, func() { t.Errorf("%s without a terminal is the end", sent) })
		if err := syscall.Kill(syscall.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
		if got := <-passed; got != sent {
			t.Errorf("the command gets %s", got)
		}
		stop()
	}
}
