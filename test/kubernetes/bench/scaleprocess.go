package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// scaleReady limits the time until all nodes have filled their caches.
	scaleReady = 15 * time.Minute
	// spareNodes exist next to those of the design: the coordinating process runs on the
	// first, and the single process whose memory is measured on the second.
	spareNodes = 2
	// quietPoll is the interval of the polls of the API server's metrics.
	quietPoll = time.Second
)

// startAll starts the processes of all nodes and returns when their caches are filled.
func (sc *scale) startAll(ctx context.Context) (leader *process, all []*process, err error) {
	if sc.design.command != nil {
		all, err = sc.startAlternatives(ctx)
		return nil, all, err
	}
	if sc.design.coordinated() {
		if leader, err = sc.startLeader(ctx, "leader"); err != nil {
			return nil, nil, err
		}
		all = append(all, leader)
	}
	nodes := sc.design.nodes
	each := (nodes + sc.s.processes - 1) / sc.s.processes
	for first := 0; first < nodes; first += each {
		p, err := sc.startScale(fmt.Sprintf("nodes-%05d", first), first, min(each, nodes-first), "-elect=false")
		if err != nil {
			return leader, all, err
		}
		all = append(all, p)
	}
	return leader, all, sc.awaitReady(ctx, "ready: ", all)
}

// startScale starts test/scale for some nodes.
func (sc *scale) startScale(name string, first, nodes int, more ...string) (*process, error) {
	if sc.design.coordinated() {
		more = append(more, "-node-label-policy="+volumeLabelPolicy)
	}
	return startProcess(sc.dir, name, sc.s.scale, slices.Concat(sc.design.flags, more, []string{
		"-kubeconfig=" + sc.kubeconfig, "-driver=" + scaleDriver, "-namespace=" + namespace,
		"-first=" + strconv.Itoa(first), "-nodes=" + strconv.Itoa(nodes), "-latency=" + sc.s.latency.String(),
	})...)
}

// startLeader starts the process of one node alone, and returns when it is elected.
func (sc *scale) startLeader(ctx context.Context, name string) (*process, error) {
	p, err := sc.startScale(name, sc.design.nodes, 1)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sc.awaitReady(ctx, "ready: ", []*process{p}), sc.awaitElected(ctx, scaleNode(sc.design.nodes))); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// awaitElected returns when a node's process holds a lease.
func (sc *scale) awaitElected(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, scaleReady)
	defer cancel()
	for {
		leases, err := sc.client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, lease := range leases.Items {
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder == name {
				return nil
			}
		}
		if err := pause(ctx, quietPoll); err != nil {
			return fmt.Errorf("%s is not elected: %w", name, err)
		}
	}
}

// startAlternatives starts the alternative for each node, with a driver of that node.
func (sc *scale) startAlternatives(ctx context.Context) (all []*process, err error) {
	sockets := filepath.Join(sc.dir, "sockets")
	if err := os.Mkdir(sockets, 0o700); err != nil {
		return nil, err
	}
	sc.drivers, err = startProcess(sc.dir, "drivers", sc.s.scale, "-sockets="+sockets, "-driver="+scaleDriver,
		"-nodes="+strconv.Itoa(sc.design.nodes), "-latency="+sc.s.latency.String())
	if err != nil {
		return nil, err
	}
	if err := sc.awaitReady(ctx, "ready: ", []*process{sc.drivers}); err != nil {
		return nil, err
	}
	command := sc.design.command
	for i := range sc.design.nodes {
		node := scaleNode(i)
		p, err := startProcessWith([]string{"NODE_NAME=" + node, "POD_NAME=" + node, "NAMESPACE=" + namespace},
			sc.dir, "alternative-"+node, command[0], slices.Concat(command[1:], []string{
				"--csi-address=" + filepath.Join(sockets, node+".sock"), "--kubeconfig=" + sc.kubeconfig,
			})...)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, sc.awaitReady(ctx, sc.s.ready, all)
}

// awaitReady returns when each process has logged that its caches are filled.
func (sc *scale) awaitReady(ctx context.Context, line string, processes []*process) error {
	ctx, cancel := context.WithTimeout(ctx, scaleReady)
	defer cancel()
	last := time.Now()
	for i, p := range processes {
		for {
			log, err := os.ReadFile(p.log.Name())
			if err != nil {
				return err
			}
			if strings.Contains(string(log), line) {
				break
			}
			if time.Since(last) > sayPeriod {
				last = time.Now()
				say("%s: %d of %d processes are ready", sc.design, i, len(processes))
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not log %q; see %s: %w", p.name, line, p.log.Name(), context.Cause(ctx))
			case <-p.ended:
				return fmt.Errorf("%s ended, see %s", p.name, p.log.Name())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// awaitQuiet returns when the API server sends no more claims and volumes.
func (sc *scale) awaitQuiet(ctx context.Context) error {
	last := -1.0
	for {
		now, err := sc.served(ctx)
		if err != nil || now.volumes == last {
			return err
		}
		last = now.volumes
		if err := pause(ctx, 2*quietPoll); err != nil {
			return err
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func usageOf(processes []*process) (all used) {
	for _, p := range processes {
		if u, err := usage(p.cmd.Process.Pid, os.ReadFile); err == nil {
			all = all.add(u)
		}
	}
	return all
}
