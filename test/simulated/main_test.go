package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// serve returns a client of the simulated driver.
func serve(t *testing.T, latency time.Duration) *csiclient.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(simulated("simulated.holdfast.dev", "node-7", latency).Serve(listener))
	client, err := csiclient.Dial(socket, csiclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestSimulated_attachesAndListsWhere(t *testing.T) {
	client := serve(t, 0)
	can, err := client.ControllerCapabilities(t.Context())
	if err != nil || !can.Attach || !can.CreateDelete || !can.Snapshots || !can.Expand {
		t.Fatalf("it can %+v, %v", can, err)
	}
	info, err := client.NodeInfo(t.Context())
	if err != nil || info.GetNodeId() != "node-7" {
		t.Errorf("its node is %v, %v", info, err)
	}
}

func TestSimulated_delaysOperationsButNotIdentification(t *testing.T) {
	client := serve(t, time.Hour)
	if err := client.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := client.ControllerCapabilities(t.Context()); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.DeleteVolume(short, &csi.DeleteVolumeRequest{VolumeId: "v"}); err == nil {
		t.Error("a call that takes an hour was answered at once")
	}
}
