package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is a process's time between SIGTERM and SIGKILL.
const stopTimeout = 20 * time.Second

// process is a program that runs on the machine, outside the cluster.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	log   *os.File
}

// startProcess runs a program until stop, or until this process ends. It writes the
// output to a file in dir.
func startProcess(dir, name, path string, args ...string) (*process, error) {
	return startProcessWith(nil, dir, name, path, args...)
}

// startProcessWith is startProcess with more environment variables.
func startProcessWith(environment []string, dir, name, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	p := &process{name: name, cmd: cmd, ended: make(chan struct{}), log: log}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process. It returns an error if the process had ended by itself.
func (p *process) stop() error {
	defer func() { _ = p.log.Close() }()
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself (%v), see %s", p.name, p.cmd.ProcessState, p.log.Name())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s does not end", p.name), p.cmd.Process.Kill())
	}
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	_ = p.log.Close()
}

// used is the memory and CPU time of a process.
type used struct {
	rss, anonymous int64 // bytes
	cpu            time.Duration
}

func (u used) add(v used) used {
	return used{u.rss + v.rss, u.anonymous + v.anonymous, u.cpu + v.cpu}
}

// memory formats the resident memory. Its part that is not anonymous is pages of the
// binary, which the kernel can drop and which processes of the same file share.
func (u used) memory() string {
	return fmt.Sprintf("%s (%.1f anonymous)", mebibytes(u.rss), float64(u.anonymous)/(1<<20))
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// usage reads the current usage of a process. read reads a file of /proc in a PID
// namespace that has the process.
func usage(pid int, read func(path string) ([]byte, error)) (used, error) {
	rollup, err := read(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return used{}, err
	}
	stat, err := read(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return used{}, err
	}
	u := used{rss: kilobytes(rollup, "Rss:"), anonymous: kilobytes(rollup, "Anonymous:")}
	// Behind the name in parentheses, the 12th and 13th field: proc_pid_stat(5).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return used{}, err
		}
		u.cpu += time.Duration(ticks) * (time.Second / clockTicks)
	}
	return u, nil
}

// clockTicks are in a second, on every Linux (USER_HZ).
const clockTicks = 100

func kilobytes(rollup []byte, name string) int64 {
	for lines := bufio.NewScanner(bytes.NewReader(rollup)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == name {
			value, err := strconv.ParseInt(fields[1], 10, 64)
			if err == nil {
				return value << 10
			}
		}
	}
	return 0
}

// system is the processes that do the work of the sidecars for a simulated driver.
type system struct {
	name      string
	driver    string // CSI plugin name
	dir       string
	config    string // kubeconfig of its account
	simulated *process
	processes []*process
	commands  [][]string
}

// start runs the simulated driver and the controllers' processes.
func (m *system) start(s settings) (err error) {
	socket := filepath.Join(m.dir, "csi.sock")
	if m.simulated, err = startProcess(m.dir, "simulated", s.simulated,
		"-socket="+socket, "-name="+m.driver, "-latency="+s.latency.String()); err != nil {
		return err
	}
	return m.startControllers()
}

func (m *system) startControllers() error {
	for _, command := range m.commands {
		args := append(command[1:len(command):len(command)], "--csi-address="+filepath.Join(m.dir, "csi.sock"), "--kubeconfig="+m.config)
		p, err := startProcess(m.dir, filepath.Base(command[0]), command[0], args...)
		if err != nil {
			return err
		}
		m.processes = append(m.processes, p)
	}
	return nil
}

// stopControllers ends the controllers; the driver keeps running.
func (m *system) stopControllers() error {
	var failed []error
	for _, p := range m.processes {
		failed = append(failed, p.stop())
	}
	m.processes = nil
	return errors.Join(failed...)
}

func (m *system) stop() error {
	err := m.stopControllers()
	if m.simulated != nil {
		err = errors.Join(err, m.simulated.stop(), os.Remove(filepath.Join(m.dir, "csi.sock")))
		m.simulated = nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// during runs f and fails if a process ends meanwhile, for example because a busy
// machine made it lose its lease.
func (m *system) during(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, p := range m.processes {
		go func() {
			select {
			case <-ctx.Done():
			case <-p.ended:
				cancel(fmt.Errorf("%s has ended by itself; the end of %s says why", p.name, p.log.Name()))
			}
		}()
	}
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// usage returns the usage of all controllers together, without the driver.
func (m *system) usage() (used, error) {
	var all used
	for _, p := range m.processes {
		u, err := usage(p.cmd.Process.Pid, os.ReadFile)
		if err != nil {
			return used{}, fmt.Errorf("%s: %w", p.name, err)
		}
		all = all.add(u)
	}
	return all, nil
}

// idle waits for d and returns the usage.
func (m *system) idle(ctx context.Context, d time.Duration) (used, error) {
	select {
	case <-ctx.Done():
		return used{}, ctx.Err()
	case <-time.After(d):
		return m.usage()
	}
}
