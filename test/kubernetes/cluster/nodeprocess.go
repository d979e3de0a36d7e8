package cluster

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nodeNamespaces are made with a node's process. The control group namespace
// comes later, when the process has been put into its group: see RunNode.
const nodeNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// nodeProcess is the first process of a node, seen from the supervisor.
type nodeProcess struct {
	pid      int
	started  time.Time
	lifeline *os.File
	ended    chan struct{}
}

// startNode starts a node, as a machine's power button does.
func (s *supervisor) startNode(name string) error {
	index := slices.Index(s.record.Options.nodeNames(), name) + 1
	if index == 0 {
		return fmt.Errorf("cluster: no node %q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[name] != nil {
		return nil
	}
	if err := s.forgetLastRun(name); err != nil {
		return err
	}
	if err := s.record.writeNodeConfig(s.layout, name, index); err != nil {
		return err
	}
	node, err := s.spawnNode(name, index)
	if err != nil {
		return err
	}
	s.nodes[name] = node
	return nil
}

// forgetLastRun removes the state that a machine has in memory only.
func (s *supervisor) forgetLastRun(name string) error {
	if err := os.RemoveAll(filepath.Join(s.layout.nodeRoot(name), "run")); err != nil {
		return fmt.Errorf("cluster: clear /run of %s: %w", name, err)
	}
	return os.MkdirAll(s.layout.nodeRoot(name), 0o755)
}

// spawnNode starts the process and puts it into its control group and on the
// network before it acts.
func (s *supervisor) spawnNode(name string, index int) (*nodeProcess, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.layout.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := &exec.Cmd{
		Path: path, Args: []string{path, "node", string(s.layout), name, strconv.Itoa(index)},
		Stdout: log, Stderr: log, Dir: "/", Env: nodeEnvironment(),
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: nodeNamespaces, Setsid: true},
	}
	node := &nodeProcess{started: time.Now(), ended: make(chan struct{})}
	var ended <-chan unix.WaitStatus
	node.lifeline, err = startOnLifeline(cmd, func() (err error) {
		ended, err = s.reaper.start(cmd)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: node %s: %w", name, err)
	}
	node.pid = cmd.Process.Pid
	go s.watchNode(name, node, ended)
	if err := s.placeNode(name, index, node); err != nil {
		_ = node.lifeline.Close() // which ends it
		return nil, err
	}
	return node, nil
}

func (s *supervisor) placeNode(name string, index int, node *nodeProcess) error {
	if err := joinControlGroup(s.record.controlGroup()+"/"+name, node.pid); err != nil {
		return err
	}
	if err := s.record.plugNode(index, node.pid); err != nil {
		return err
	}
	return giveGoAhead(node.lifeline)
}

// watchNode records the end of a node. A node that ends by itself stays down, as a
// crashed machine does.
func (s *supervisor) watchNode(name string, node *nodeProcess, ended <-chan unix.WaitStatus) {
	status := <-ended
	_ = node.lifeline.Close()
	slog.Info("a node ended", "node", name, "exit", status.ExitStatus(), "signal", status.Signal())
	s.mu.Lock()
	if s.nodes[name] == node {
		delete(s.nodes, name)
	}
	s.mu.Unlock()
	close(node.ended)
}

// stopNode stops a node as a power failure does: it kills all processes. It also detaches
// the loop devices, which a machine would lose with its kernel.
func (s *supervisor) stopNode(name string) error {
	s.mu.Lock()
	node := s.nodes[name]
	s.mu.Unlock()
	if node != nil {
		if err := syscall.Kill(node.pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("cluster: end node %s: %w", name, err)
		}
		<-node.ended
	}
	if err := detachLoops(s.layout.nodeRoot(name)); err != nil {
		return err
	}
	return removeControlGroup(s.record.controlGroup() + "/" + name)
}
