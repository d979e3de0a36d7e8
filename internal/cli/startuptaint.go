package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/taint"
)

// idPause is between two questions of who this machine is.
const idPause = 5 * time.Second

// checkStartupTaint refuses to remove taints without the node service, or without a
// node name.
func (f driverFlags) checkStartupTaint() error {
	switch {
	case !f.removeTaint:
		return nil
	case f.mode == server.Controller:
		return usageErrorf("--remove-startup-taint: mode controller has no node; give it to the mode node or all")
	case f.kube.node == "":
		return usageErrorf("--remove-startup-taint: the name of this machine's Node is not known; give --node-name or $NODE_NAME")
	}
	return nil
}

// buildStartupTaint connects to the API server for the taint's sake.
func (d *driverProcess) buildStartupTaint() error {
	if !d.config.removeTaint {
		return nil
	}
	klog.SetSlogLogger(d.config.logger.With("component", "client-go"))
	clients, err := cluster.Connect(d.config.kubeconfig, "holdfast/"+d.config.version)
	if err != nil {
		return fmt.Errorf("--remove-startup-taint: %w", err)
	}
	d.taintClient = clients.Core
	return nil
}

// removeStartupTaint waits for the CSI socket: only a driver that serves makes
// the node ready for pods with volumes.
func (d *driverProcess) removeStartupTaint(ctx context.Context) error {
	select {
	case <-d.server.Ready():
	case <-ctx.Done():
		return nil
	}
	id, known := d.waitForID(ctx)
	if !known {
		return nil
	}
	taint.New(taint.Options{
		Client: d.taintClient, Node: d.config.nodeName, NodeID: id, Logger: d.config.logger,
		Driver: cmp.Or(d.config.name, d.backend.controller.Traits().DriverName),
	}).Run(ctx)
	return nil
}

// waitForID polls for the ID of this node. An ID that is not known yet also keeps the
// kubelet from registering the driver, and does not end the process.
func (d *driverProcess) waitForID(ctx context.Context) (id string, known bool) {
	for {
		info, err := d.engine.Info(ctx)
		if err == nil {
			return info.ID, true
		}
		d.config.logger.DebugContext(ctx, "the startup taint stays: the node does not know itself", "error", err)
		if concurrency.Sleep(ctx, idPause) != nil {
			return "", false
		}
	}
}
