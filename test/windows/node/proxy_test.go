//go:build wine && linux

package node

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// A driver that is there before csi-proxy stays, says what is missing, is ready
// once the proxy is there, and again after the proxy has gone and come back.
func TestDriver_outlivesTheProxy(t *testing.T) {
	w := &world{machine: control{t: t, address: freeAddress(t)}, address: freeAddress(t)}
	w.startDriver(t)
	connection, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	identity, node := csi.NewIdentityClient(connection), csi.NewNodeClient(connection)
	probe := func() error {
		_, err := identity.Probe(t.Context(), &csi.ProbeRequest{})
		return err
	}
	missing := func() {
		t.Helper()
		if err := probe(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "csi-proxy") {
			t.Errorf("without the proxy Probe says %v", err)
		}
		_, err := node.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
			VolumeId: "vol-0123456789abcdef0", StagingTargetPath: kubeletDir + `\plugins\x`,
		})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("without the proxy a call gets %v", err)
		}
		if _, err := node.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}); err != nil {
			t.Errorf("NodeGetInfo without the proxy: %v", err)
		}
	}
	missing()
	for range 2 {
		w.startProxy(t)
		must(t, w.machine.call("POST", "/files", map[string]any{"path": kubeletDir, "kind": "directory"}, nil))
		deadline := time.Now().Add(startTime)
		for err := probe(); err != nil; err = probe() {
			if time.Now().After(deadline) {
				t.Fatalf("with the proxy Probe says %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.proxy.stop()
		missing()
	}
}
