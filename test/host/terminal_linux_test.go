package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal runs a command on a pseudo-terminal.
type terminal struct {
	t       *testing.T
	master  *os.File
	command *exec.Cmd
	ended   chan struct{} // closed when everything was read

	mu   sync.Mutex
	text strings.Builder
}

func newTerminal(t *testing.T, columns, rows uint16, environment []string, arguments ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slave.Close() }()
	v := &terminal{t: t, master: master, ended: make(chan struct{})}
	v.resize(columns, rows)
	v.command = exec.Command(binary, arguments...)
	v.command.Stdin, v.command.Stdout, v.command.Stderr = slave, slave, slave
	v.command.Env = append(append(os.Environ(), "TERM=xterm-256color"), environment...)
	v.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := v.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.command.Process.Kill() })
	go v.read()
	return v
}

// read ends when the last process has closed the terminal.
func (v *terminal) read() {
	defer close(v.ended)
	buffer := make([]byte, 4<<10)
	for {
		n, err := v.master.Read(buffer)
		v.mu.Lock()
		v.text.Write(buffer[:n])
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (v *terminal) written() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.String()
}

// from waits until all words were written after a position, and returns the next.
func (v *terminal) from(position int, words ...string) int {
	v.t.Helper()
	for deadline := time.Now().Add(limitOfTest); ; time.Sleep(5 * time.Millisecond) {
		text := v.written()
		missing := ""
		for _, word := range words {
			if !strings.Contains(text[position:], word) {
				missing = word
			}
		}
		if missing == "" {
			return len(text)
		}
		if time.Now().After(deadline) {
			v.t.Fatalf("the terminal does not show %q:\n%q", missing, text[max(position, len(text)-4000):])
		}
	}
}

func (v *terminal) press(keys string) {
	v.t.Helper()
	if _, err := v.master.WriteString(keys); err != nil {
		v.t.Fatal(err)
	}
}

func (v *terminal) resize(columns, rows uint16) {
	v.t.Helper()
	if err := unix.IoctlSetWinsize(int(v.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		v.t.Fatal(err)
	}
}

// wait returns the exit code.
func (v *terminal) wait() int {
	v.t.Helper()
	timer := time.AfterFunc(limitOfTest, func() { _ = v.command.Process.Kill() })
	defer timer.Stop()
	err := v.command.Wait()
	<-v.ended
	if v.command.ProcessState.Exited() {
		return v.command.ProcessState.ExitCode()
	}
	v.t.Fatalf("the command ended with %v:\n%q", err, v.written())
	return -1
}
