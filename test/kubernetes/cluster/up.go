package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout is how long the programs of a cluster get until all nodes are
// Ready, on a machine that has other work too.
const startTimeout = 5 * time.Minute

// machinesTimeout is that time with machines that an emulator may run.
const machinesTimeout = time.Hour

// Up starts a cluster and returns when its nodes are Ready, its images imported and the
// CRDs installed. After an error it has removed everything but the logs.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	l := layout(o.Dir)
	if err := l.clear(); err != nil {
		return nil, err
	}
	timeout := startTimeout
	if o.Machines != "" {
		timeout = machinesTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := start(ctx, l, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w (logs: %s)", err, l.path("logs")), Down(o.Dir))
	}
	return c, nil
}

// clear removes an earlier cluster that has ended without Down. It returns an error if
// that cluster runs.
func (l layout) clear() error {
	if err := os.MkdirAll(l.path("logs"), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(string(l), 0o700); err != nil { // keys and sockets are below
		return err
	}
	there, err := l.hasRecord()
	if err != nil {
		return err
	}
	if there {
		r, err := readRecord(l)
		if err != nil {
			return err
		}
		if running, err := r.Supervisor.running(); err != nil || running {
			return errors.Join(err, fmt.Errorf("cluster: one runs in %s already: use it, or take it down first", string(l)))
		}
		if err := Down(string(l)); err != nil {
			return err
		}
	}
	return os.RemoveAll(l.path("logs"))
}

func start(ctx context.Context, l layout, o Options) (*Cluster, error) {
	r, err := begin(l, o)
	if err != nil {
		return nil, err
	}
	c, err := open(l, r)
	if err != nil {
		return nil, err
	}
	return c, c.await(ctx)
}

// begin chooses a free network and creates its device, under a lock against other
// clusters: existing devices show which networks are in use.
func begin(l layout, o Options) (record, error) {
	all, err := os.Open("/run")
	if err != nil {
		return record{}, err
	}
	defer func() { _ = all.Close() }() // which unlocks
	if err := unix.Flock(int(all.Fd()), unix.LOCK_EX); err != nil {
		return record{}, fmt.Errorf("cluster: wait for another that starts: %w", err)
	}
	r, err := newRecord(l, o)
	if err != nil {
		return record{}, err
	}
	return r, r.launch(l)
}

// newRecord chooses all names and addresses, and writes them before they are used.
func newRecord(l layout, o Options) (record, error) {
	used, err := usedPrefixes()
	if err != nil {
		return record{}, err
	}
	r := record{ID: randomHex(4), Options: o}
	if r.Plan, err = choosePlan(used); err != nil {
		return record{}, err
	}
	if !o.NoNodes { // only kubelets change them
		if r.Sysctls, err = readSysctls(); err != nil {
			return record{}, err
		}
	}
	if err := os.MkdirAll(l.path("logs"), 0o755); err != nil {
		return record{}, err
	}
	if err := r.write(l); err != nil {
		return record{}, err
	}
	return r, writeCredentials(l, r.Plan, o.nodeNames())
}

// launch starts the supervisor, which waits until it is recorded and plugged in.
func (r *record) launch(l layout) error {
	log, err := os.OpenFile(l.log("supervisor"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	path := filepath.Join(r.Options.Binaries, "cluster")
	cmd := &exec.Cmd{
		Path: path, Args: []string{path, "supervise", string(l)}, Stdout: log, Stderr: log, Dir: "/",
		Env:         append(nodeEnvironment(), "HOLDFAST_CLUSTER="+r.ID),
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: supervisorNamespaces, Setsid: true},
	}
	lifeline, err := startOnLifeline(cmd, cmd.Start)
	if err != nil {
		return fmt.Errorf("cluster: start the supervisor: %w", err)
	}
	// This process is the parent: it has to wait for the supervisor, and it keeps the
	// lifeline open.
	go func() {
		_ = cmd.Wait()
		_ = lifeline.Close()
	}()
	return r.admit(l, cmd.Process.Pid, lifeline)
}

func (r *record) admit(l layout, pid int, lifeline io.Writer) error {
	var err error
	if r.Supervisor, err = identify(pid); err != nil {
		return err
	}
	if err := r.write(l); err != nil {
		return err
	}
	if err := joinControlGroup(r.controlGroup()+"/control-plane", pid); err != nil {
		return err
	}
	if err := r.plugMachine(pid); err != nil {
		return err
	}
	return giveGoAhead(lifeline)
}
