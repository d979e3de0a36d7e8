//go:build monitoring

package e2e

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs until the test ends.
type process struct {
	t    *testing.T
	name string
	*exec.Cmd
	log   string
	ended chan struct{}
}

// start runs a program; its log is shown if the test fails.
func start(t *testing.T, name, program string, arguments ...string) *process {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, Cmd: exec.Command(program, arguments...), log: log.Name(), ended: make(chan struct{})}
	p.Stdout, p.Stderr = log, log
	// The program ends with the test, also with one that is killed.
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait()
		close(p.ended)
		_ = log.Close()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			text, _ := os.ReadFile(p.log)
			lines := bytes.Split(text, []byte("\n"))
			t.Logf("the log of %s ends with\n%s", name, bytes.Join(lines[max(0, len(lines)-25):], []byte("\n")))
		}
	})
	return p
}

// stop ends the program as a service manager does.
func (p *process) stop() {
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("%s does not end", p.name)
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
}

// signal has no effect on a program that has ended.
func (p *process) signal(s syscall.Signal) { _ = p.Process.Signal(s) }

// address is a free one of the loopback interface.
func address(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// eventually waits until complaint returns "".
func eventually(t *testing.T, what string, complaint func() string) {
	t.Helper()
	within(t, patience, what, complaint)
}

func within(t *testing.T, limit time.Duration, what string, complaint func() string) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last = complaint(); last == "" {
			return
		}
	}
	t.Fatalf("%s: %s", what, last)
}
