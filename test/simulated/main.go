// Command simulated serves the CSI driver of package csidriver on a socket: a
// driver with attachable volumes that exist in its memory only, with configurable
// delays. It replaces a storage system in measurements and trials of everything around
// the driver.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulated:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	socket := flag.String("socket", "", "`PATH` of the socket to serve")
	name := flag.String("name", "simulated.holdfast.dev", "CSI plugin `NAME`")
	node := flag.String("node", "node-1", "`ID` of the node it is on")
	latency := flag.Duration("latency", 0, "how long each call takes that makes, changes or lists something")
	flag.Parse()
	if *socket == "" {
		return errors.New("-socket is not given")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", *socket)
	if err != nil {
		return err
	}
	stop := simulated(*name, *node, *latency).Serve(listener)
	fmt.Fprintf(os.Stderr, "simulated: %s serves %s; its volumes are gone when it ends\n", *name, *socket)
	<-ctx.Done()
	stop()
	return nil
}

// simulated makes a driver as that of a storage system on the network is:
// volumes are attached to one node after another, grow, and are listed with the
// nodes they are attached to.
func simulated(name, node string, latency time.Duration) *csidriver.Driver {
	d := csidriver.New(name)
	d.NodeID = node
	d.Controller = append(d.Controller,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	d.Before = func(ctx context.Context, rpc string, _ any) error { return wait(ctx, rpc, latency) }
	return d
}

// wait takes the time of a call, except of the calls that identify the driver.
func wait(ctx context.Context, rpc string, latency time.Duration) error {
	if latency <= 0 || rpc == "Probe" || strings.HasPrefix(rpc, "GetPlugin") || strings.HasSuffix(rpc, "GetCapabilities") || rpc == "NodeGetInfo" {
		return nil
	}
	return concurrency.Sleep(ctx, latency)
}
