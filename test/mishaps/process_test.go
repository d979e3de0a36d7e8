//go:build kubernetes

package mishaps

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

// process is `holdfast sidecars` in a process of its own.
type process struct {
	cmd   *exec.Cmd
	log   *output
	ended chan struct{}
}

// output is what a process says.
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

// end is the last of it.
func (o *output) end() string {
	lines := strings.SplitAfter(o.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "")
}

func sidecars(t *testing.T, arguments ...string) *process {
	t.Helper()
	return holdfast(t, append([]string{"sidecars"}, arguments...)...)
}

// holdfast starts the command; what the test leaves running is ended with it.
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

// kill ends it at once, as a loss of power does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// terminate ends it as Kubernetes does, and returns its exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p.wait(t, 20*time.Second)
}

// wait is for a process that ends by itself.
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
