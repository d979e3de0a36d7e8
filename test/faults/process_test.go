//go:build kubernetes

package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a process that runs `holdfast sidecars`.
type process struct {
	cmd   *exec.Cmd
	log   *output
	ended chan struct{}
}

// output is the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// end returns the last part of the output.
func (o *output) end() string {
	lines := strings.SplitAfter(o.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "")
}

func sidecars(t *testing.T, arguments ...string) *process {
	t.Helper()
	return holdfast(t, append([]string{"sidecars"}, arguments...)...)
}

// holdfast starts the command. The process is killed at the end of the test.
func holdfast(t *testing.T, arguments ...string) *process {
	t.Helper()
	p := &process{log: &output{}, ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], arguments...)
	p.cmd.Env = append(os.Environ(), processVariable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v said:\n%s", arguments, p.log.end())
		}
	})
	return p
}

// kill kills the process, as a loss of power does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// terminate ends the process with SIGTERM, as Kubernetes does, and returns its exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p.wait(t, 20*time.Second)
}

// wait waits until the process ends by itself and returns its exit code.
func (p *process) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatal(fmt.Errorf("the process has not ended after %v", limit))
		return 0
	}
}
