package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// container is one container of the machine: its recorded state, and its process.
type container struct {
	w     *world
	uid   types.UID
	name  string
	state workload.State
	// ended is closed when the process ends; nil if none runs.
	ended chan struct{}
	// deaf ignores SIGTERM.
	deaf bool
	// paths are the volumes that the process uses.
	paths []string
}

func (c *container) key() string { return string(c.uid) + "/" + c.name }

// container finds or makes a container, as the host sees it.
func (w *world) container(uid types.UID, name string) pods.Container {
	key := string(uid) + "/" + name
	if w.containers[key] == nil {
		w.containers[key] = &container{w: w, uid: uid, name: name}
	}
	return hostContainer{w.containers[key], w.host}
}

// running returns the containers whose processes run, in order.
func (w *world) running() (all []*container) {
	for _, key := range slices.Sorted(maps.Keys(w.containers)) {
		if c := w.containers[key]; c.ended != nil {
			all = append(all, c)
		}
	}
	return all
}

// end ends the process of a container.
func (c *container) end(code int, signal int) {
	reason := workload.ReasonCompleted
	if code != 0 || signal != 0 {
		reason = workload.ReasonError
	}
	c.state = c.state.End(workload.Ended{Finished: time.Now(), ExitCode: code, Signal: signal, Reason: reason})
	close(c.ended)
	c.ended = nil
}

// die ends the process without a record, as a reboot does.
func (c *container) die() {
	close(c.ended)
	c.ended = nil
}

// hostContainer is a container for one process of the host.
type hostContainer struct {
	*container
	host *hostProcess
}

// Inspect implements pods.Container, as workload.Shim does.
func (c hostContainer) Inspect(reason string) (workload.State, pods.Process, error) {
	if c.host.process.Dead() {
		return workload.State{}, nil, lab.ErrDead
	}
	if c.ended != nil {
		return c.state, newProcess(c), nil
	}
	if c.state.Phase != workload.Running {
		return c.state, nil, nil
	}
	if c.state.BootID != c.w.machine.bootID() {
		reason = workload.ReasonUnknown
	}
	ended := workload.Ended{Finished: time.Now(), ExitCode: inside.LostCode, Reason: reason}
	if reason == workload.ReasonError {
		ended.Signal = int(syscall.SIGKILL)
	}
	c.state = c.state.End(ended)
	return c.state, nil, nil
}

// Start implements pods.Container.
func (c hostContainer) Start(spec workload.Container, pause time.Duration) (workload.State, pods.Process, error) {
	fault, err := c.host.process.Pass(c.host.ctx, lab.Step{Kind: "start container", Object: c.key(), Faults: []string{"fails", "ends", "deaf"}})
	if err != nil {
		return workload.State{}, nil, err
	}
	if c.ended != nil || c.state.Phase == workload.Running {
		return workload.State{}, nil, workload.ErrBusy
	}
	c.state = c.state.Next(c.w.machine.bootID())
	c.state.Pause = pause
	if fault == "fails" {
		return workload.State{}, nil, fmt.Errorf("container %q: no process can be started", c.name)
	}
	c.paths = nil
	for _, mount := range spec.Mounts {
		if strings.HasPrefix(mount.Source, c.w.machine.root) && !strings.Contains(mount.Source, "empty-dir") {
			c.paths = append(c.paths, mount.Source)
			if c.w.machine.find(mount.Source) == nil {
				c.w.violated("container %s of pod %s starts without its volume at %s", c.name, c.uid, mount.Source)
			}
		}
	}
	c.state.Phase, c.state.Started = workload.Running, time.Now()
	c.ended, c.deaf = make(chan struct{}), fault == "deaf"
	process := newProcess(c)
	if fault == "ends" {
		c.end(1, 0)
	}
	return c.state, process, nil
}

// process is the host's handle of a container's process.
type process struct {
	container *container
	ended     <-chan struct{}
	once      sync.Once
	closed    chan struct{}
}

func newProcess(c hostContainer) *process {
	return &process{container: c.container, ended: c.ended, closed: make(chan struct{})}
}

// Wait implements pods.Process.
func (p *process) Wait() bool {
	select {
	case <-p.closed:
		return false
	default:
	}
	select {
	case <-p.ended:
		return true
	case <-p.closed:
		return false
	}
}

// Close implements pods.Process.
func (p *process) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Signal implements pods.Process: the process ends later, by a step of the machine.
func (p *process) Signal(signal syscall.Signal) error {
	c := p.container
	if c.ended == nil || signal == syscall.SIGTERM && c.deaf && c.w.lab.Troubled() {
		return nil
	}
	ended := c.ended
	c.w.background.Go(func() {
		_, err := c.w.kernel.Pass(context.Background(), lab.Step{Kind: "end of container", Object: c.key()})
		if err == nil && c.ended == ended {
			c.end(0, int(signal))
		}
	})
	return nil
}
