package cluster

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorNamespaces are made with the supervisor's process.
const supervisorNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// supervisor runs the control plane and the nodes.
type supervisor struct {
	layout   layout
	record   record
	reaper   *reaper
	services []*service

	mu    sync.Mutex
	nodes map[string]*nodeProcess
	err   error // why the start failed
	ready bool  // all was started
}

// Status is the state of the cluster's programs and nodes.
type Status struct {
	// Ready says that every program has been started, not that it answers yet.
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"`
	// Programs are the pids of the control plane's programs in the supervisor's
	// PID namespace, 0 for one that does not run.
	Programs map[string]int `json:"programs"`
	// Nodes are those that are on.
	Nodes map[string]NodeStatus `json:"nodes"`
}

// NodeStatus is the state of a running node.
type NodeStatus struct {
	// PID is that of the node's first process in the supervisor's PID namespace.
	PID int `json:"pid"`
	// Started is when it was turned on.
	Started time.Time `json:"started"`
}

// Supervise is the supervisor's process, as Up starts it: it returns only an
// error. dir is the state directory.
func Supervise(dir string) error {
	l := layout(dir)
	lifeline, err := awaitGoAhead()
	if err != nil {
		return err
	}
	r, err := readRecord(l)
	if err != nil {
		return err
	}
	if r.Options.Attached {
		go endWith(lifeline)
	} else if err := lifeline.Close(); err != nil {
		return err
	}
	s := &supervisor{layout: l, record: r, reaper: newReaper(), nodes: make(map[string]*nodeProcess)}
	listener, err := listenControl(l.control())
	if err != nil {
		return err
	}
	go func() {
		err := s.start()
		if err != nil {
			slog.Error("the cluster could not be started", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err, s.ready = err, err == nil
	}()
	serveControl(listener, s.handler())
	return fmt.Errorf("cluster: the control socket %s is closed", l.control())
}

// start makes everything inside the namespaces.
func (s *supervisor) start() error {
	if err := propagate(unix.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("control-plane")); err != nil {
		return err
	}
	if err := s.record.makeBridge(); err != nil {
		return err
	}
	services, err := s.record.startControlPlane(s.layout, s.reaper)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.services = services
	s.mu.Unlock()
	return s.startNodes()
}

func (s *supervisor) startNodes() error {
	for i, name := range s.record.Options.nodeNames() {
		start := func() error { return s.startNode(name) }
		if s.record.Options.Machines != "" {
			start = func() error { return s.record.plugNodeMachine(i + 1) }
		}
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /status", answer(func(*http.Request) (any, error) { return s.status(), nil }))
	mux.Handle("POST /nodes/{node}/start", answer(func(r *http.Request) (any, error) {
		return nil, s.startNode(r.PathValue("node"))
	}))
	mux.Handle("POST /nodes/{node}/stop", answer(func(r *http.Request) (any, error) {
		return nil, s.stopNode(r.PathValue("node"))
	}))
	mux.Handle("POST /programs/{program}/{verb}", answer(func(r *http.Request) (any, error) {
		return nil, control(s.services, r.PathValue("program"), r.PathValue("verb"))
	}))
	return mux
}

func (s *supervisor) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Ready: s.ready, Programs: make(map[string]int), Nodes: make(map[string]NodeStatus)}
	if s.err != nil {
		status.Error = s.err.Error()
	}
	for _, p := range s.services {
		status.Programs[p.name] = p.running()
	}
	for name, n := range s.nodes {
		status.Nodes[name] = NodeStatus{PID: n.pid, Started: n.started}
	}
	return status
}

// control starts, stops, or restarts one of several programs.
func control(services []*service, name, verb string) error {
	for _, s := range services {
		if s.name != name {
			continue
		}
		switch verb {
		case "start":
			return s.start()
		case "stop":
			return s.stop()
		case "restart":
			if err := s.stop(); err != nil {
				return err
			}
			return s.start()
		}
		return fmt.Errorf("cluster: %q: start, stop or restart", verb)
	}
	return fmt.Errorf("cluster: no program %q here", name)
}

// self is this executable.
func self() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cluster: find this executable: %w", err)
	}
	return path, nil
}
