package cluster

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restartDelay is between the unexpected end of a program and its next start.
const restartDelay = time.Second

// stopTimeout is a program's time between SIGTERM and SIGKILL.
const stopTimeout = 10 * time.Second

// service keeps one program running, like the service manager of a machine.
type service struct {
	name   string
	path   string
	args   []string
	env    []string
	log    *os.File
	reaper *reaper

	mu     sync.Mutex
	wanted bool
	pid    int // 0 while it does not run
	// changed is closed and renewed when pid changes.
	changed chan struct{}
}

// newService describes a program whose output goes to the log file.
func newService(r *reaper, logPath, name, path string, args ...string) (*service, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cluster: log of %s: %w", name, err)
	}
	return &service{
		name: name, path: path, args: args, log: log, reaper: r,
		env: os.Environ(), changed: make(chan struct{}),
	}, nil
}

// start runs the program, and runs it again whenever it ends, until stop.
func (s *service) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = true
	if s.pid != 0 {
		return nil
	}
	return s.runLocked()
}

func (s *service) runLocked() error {
	// The program acts by the name of the link, not of the file behind it. It leads its
	// own process group: a terminal's signals are for the command that started the
	// cluster.
	cmd := &exec.Cmd{
		Path: s.path, Args: append([]string{s.path}, s.args...), Env: s.env,
		Stdout: s.log, Stderr: s.log, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	ended, err := s.reaper.start(cmd)
	if err != nil {
		return err
	}
	s.setLocked(cmd.Process.Pid)
	go s.watch(ended)
	return nil
}

func (s *service) setLocked(pid int) {
	s.pid = pid
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch waits for the end of one run and starts the next.
func (s *service) watch(ended <-chan unix.WaitStatus) {
	status := <-ended
	s.mu.Lock()
	s.setLocked(0)
	again := s.wanted
	s.mu.Unlock()
	if !again {
		return
	}
	slog.Warn("a program ended and is started again", "program", s.name,
		"exit", status.ExitStatus(), "signal", status.Signal())
	time.Sleep(restartDelay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted && s.pid == 0 {
		if err := s.runLocked(); err != nil {
			slog.Error("a program cannot be started", "program", s.name, "error", err)
		}
	}
}

// stop ends the program and keeps it from being started again.
func (s *service) stop() error {
	s.mu.Lock()
	s.wanted = false
	s.mu.Unlock()
	if s.signalAndWait(syscall.SIGTERM, stopTimeout) {
		return nil
	}
	slog.Warn("a program did not end when asked", "program", s.name)
	if s.signalAndWait(syscall.SIGKILL, stopTimeout) {
		return nil
	}
	return fmt.Errorf("cluster: %s does not end, not even with SIGKILL", s.name)
}

// signalAndWait reports whether the program has ended after the signal.
func (s *service) signalAndWait(signal syscall.Signal, timeout time.Duration) bool {
	deadline := time.After(timeout)
	for sent := false; ; sent = true {
		s.mu.Lock()
		pid, changed := s.pid, s.changed
		if pid != 0 && !sent {
			_ = syscall.Kill(pid, signal) // it may have ended meanwhile
		}
		s.mu.Unlock()
		if pid == 0 {
			return true
		}
		select {
		case <-changed:
		case <-deadline:
			return false
		}
	}
}

// running is the program's pid, 0 if it does not run.
func (s *service) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}
