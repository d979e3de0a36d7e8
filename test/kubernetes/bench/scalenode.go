package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// oneNode returns a process that serves one node, and what ends it if need be. Holdfast's
// is the shipped program, with the backend local.
func (sc *scale) oneNode(ctx context.Context, all []*process) (p *process, stop func() error, err error) {
	if sc.design.command != nil {
		return all[0], func() error { return nil }, nil
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, nil, err
	}
	if p, err = sc.startDriver(address); err != nil {
		return nil, nil, err
	}
	if err := awaitServing(ctx, p, "http://"+address+"/readyz"); err != nil {
		return nil, nil, errors.Join(err, p.stop())
	}
	return p, p.stop, nil
}

// startDriver starts the driver with the backend local as the chart does, for a node that
// has none of the volumes.
func (sc *scale) startDriver(metrics string) (*process, error) {
	dir, node := filepath.Join(sc.dir, "node"), scaleNode(sc.design.nodes+1)
	for _, part := range []string{"kubelet", "pool"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o700); err != nil {
			return nil, err
		}
	}
	args := []string{
		"driver", "all", "--backend=local", "--driver-name=" + scaleDriver, "--endpoint=unix://" + filepath.Join(dir, "csi.sock"),
		"--kubelet-dir=" + filepath.Join(dir, "kubelet"), "--pool=" + filepath.Join(dir, "pool"), "--metrics-address=" + metrics,
		"--node-id=" + node, "--node-name=" + node, "--kubernetes", "--kubeconfig=" + sc.kubeconfig,
		"--namespace=" + namespace, "--intents-namespace=" + namespace,
		"--enable-capacity", "--strict-topology", "--extra-create-metadata", "--leader-election=false",
	}
	if sc.design.coordinated() {
		args = append(args, "--node-objects-only", "--node-label-policy="+volumeLabelPolicy)
	}
	return startProcess(sc.dir, "driver", sc.s.holdfast, args...)
}

// freeAddress returns an address of this machine that is not in use.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// awaitServing returns when a page of a process answers without an error.
func awaitServing(ctx context.Context, p *process, page string) error {
	ctx, cancel := context.WithTimeout(ctx, scaleReady)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			if err := response.Body.Close(); err != nil {
				return err
			}
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready, see %s: %w", p.name, p.log.Name(), context.Cause(ctx))
		case <-p.ended:
			return fmt.Errorf("%s ended, see %s", p.name, p.log.Name())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
