//go:build linux

// Package lab runs the ebs backend as it is deployed, on one machine: an EC2
// emulator with loop devices, a controller process, and a node process for each
// instance. The demonstration, csi-sanity and the benchmarks use it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startTime is how long a process may take until it serves; a busy machine is slow.
const startTime = 2 * time.Minute

// stopTime is how long a process has after SIGTERM before it is killed.
const stopTime = time.Minute

// process is a running program; stop ends it.
type process struct {
	name    string
	command *exec.Cmd
	log     *os.File
	ended   chan struct{}
	err     error // of the end; read it after ended
	dead    bool  // by kill
	rude    bool  // SIGTERM ends it like any other signal
}

// start runs a program with its output in a log file.
func start(
	ctx context.Context, name, logDir, program string, environment []string, arguments ...string,
) (*process, error) {
	return startIn(ctx, surroundings{}, name, logDir, program, environment, arguments...)
}

// surroundings configure a program that does not run as root in the namespaces of the
// test.
type surroundings struct {
	user    uint32 // and group; 0 is root
	offline bool   // in an empty network namespace
}

func startIn(
	ctx context.Context, s surroundings, name, logDir, program string, environment []string, arguments ...string,
) (*process, error) {
	log, err := os.Create(filepath.Join(logDir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	p := &process{name: name, command: exec.CommandContext(context.WithoutCancel(ctx), program, arguments...), log: log,
		ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr, p.command.Env = log, log, environment
	// A test that is killed leaves no process behind.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.user != 0 {
		p.command.SysProcAttr.Credential = &syscall.Credential{Uid: s.user, Gid: s.user}
	}
	if s.offline {
		p.command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// await returns when ready reports true. If the process ends or takes too long, the error
// has the end of its log.
func (p *process) await(ctx context.Context, ready func() bool) error {
	limit := time.NewTimer(startTime)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !ready() {
		select {
		case <-look.C:
		case <-p.ended:
			return fmt.Errorf("%s ended: %w; its log: %s", p.name, p.err, p.tail())
		case <-limit.C:
			return fmt.Errorf("%s does not serve after %v; its log: %s", p.name, startTime, p.tail())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tail is the end of the log.
func (p *process) tail() string {
	content, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return strings.TrimSpace(string(content[max(0, len(content)-most):]))
}

// stop ends the process with SIGTERM, and with SIGKILL after stopTime.
func (p *process) stop() error {
	defer func() { _ = p.log.Close() }()
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		_ = p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end %v after SIGTERM and was killed; its log: %s", p.name, stopTime, p.tail())
	}
	if p.err != nil && !p.rude {
		return fmt.Errorf("%s ended with %w; its log: %s", p.name, p.err, p.tail())
	}
	return nil
}

// kill ends the process like a crash.
func (p *process) kill() {
	p.dead = true
	_ = p.command.Process.Kill()
	<-p.ended
	_ = p.log.Close()
}

func (p *process) killed() bool { return p.dead }

// resident is the memory of the process in bytes now, and its peak (proc(5), VmRSS and VmHWM).
func (p *process) resident() (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			peak = kib << 10
		}
	}
	return now, peak, nil
}
