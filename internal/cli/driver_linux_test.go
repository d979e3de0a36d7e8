package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csi/server"
)

// ask connects to a socket for one question. It waits for the socket: between
// bind(2) and listen(2) there is a file that refuses.
func ask(t *testing.T, address string, question func(grpc.ClientConnInterface) error) {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	err = question(connection)
	if closed := connection.Close(); err != nil || closed != nil {
		t.Error(err, closed)
	}
}

func TestDriver_registersServesAndLeavesNothing(t *testing.T) {
	needRoot(t)
	before := goleak.IgnoreCurrent()
	root := t.TempDir()
	c := sanityDriver(root, server.All)
	c.logger = slog.New(slog.DiscardHandler)
	c.registrationDir, c.metricsAddress = filepath.Join(root, "plugins_registry"), "127.0.0.1:0"
	ctx, cancel := context.WithCancel(context.Background())
	process, err := newDriver(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx) }()
	<-process.server.Ready()
	registry := filepath.Join(c.registrationDir, "local.holdfast.dev-reg.sock")
	waitFor(t, registry)
	ask(t, "unix:"+registry, func(connection grpc.ClientConnInterface) error {
		info, err := registration.NewRegistrationClient(connection).GetInfo(ctx, &registration.InfoRequest{})
		if want := filepath.Join(root, "all.sock"); info.GetEndpoint() != want {
			t.Errorf("the registration gives the endpoint %q, want %q", info.GetEndpoint(), want)
		}
		return err
	})
	ask(t, c.endpoint, func(connection grpc.ClientConnInterface) error {
		info, err := csi.NewNodeClient(connection).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		if info.GetNodeId() != "sanity" || info.GetAccessibleTopology().GetSegments()["topology.local.holdfast.dev/node"] != "sanity" {
			t.Errorf("the node is %v", info)
		}
		return err
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the driver ended with %v", err)
	}
	for _, socket := range []string{registry, filepath.Join(root, "all.sock")} {
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", socket, err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; { // goleak itself waits half a second
		err := goleak.Find(before)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func waitFor(t *testing.T, socket string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(socket); err == nil {
			return
		}
	}
	t.Fatalf("%s does not appear", socket)
}

func TestDriver_onePoolHasOneController(t *testing.T) {
	needRoot(t)
	c := sanityDriver(t.TempDir(), server.Controller)
	c.logger = slog.New(slog.DiscardHandler)
	first, err := newDriver(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := newDriver(t.Context(), c); err == nil {
		t.Errorf("two drivers have one pool (%v)", second.Close(t.Context()))
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := newDriver(t.Context(), c)
	if err != nil {
		t.Fatalf("after the first driver's end: %v", err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDriver_aTakenMetricsAddressGivesThePoolBack(t *testing.T) {
	needRoot(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	c := sanityDriver(t.TempDir(), server.All)
	c.logger, c.metricsAddress = slog.New(slog.DiscardHandler), taken.Addr().String()
	process, err := newDriver(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Run(t.Context()); err == nil {
		t.Error("the driver runs without the address it was given")
	}
	c.metricsAddress = ""
	if process, err = newDriver(t.Context(), c); err != nil {
		t.Fatalf("the pool stays locked: %v", err)
	}
	if err := process.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDriver_refusesANodeIDThatIsNotALabelValue(t *testing.T) {
	c := sanityDriver(t.TempDir(), server.All)
	c.logger, c.nodeID = slog.New(slog.DiscardHandler), "a b"
	if _, err := newDriver(t.Context(), c); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("node ID %q ends with %v, want an invalid argument", c.nodeID, err)
	}
}
