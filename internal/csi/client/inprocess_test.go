package client_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/backend"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func within(driver *csidriver.Driver) *csiclient.Client {
	connection := csiclient.NewInProcess(driver.Intercept)
	csi.RegisterIdentityServer(connection, driver)
	csi.RegisterControllerServer(connection, driver)
	return csiclient.New(connection, csiclient.Options{Driver: driver.Name})
}

func TestInProcess_answersWithCopies(t *testing.T) {
	client := within(csidriver.New("memory.test"))
	request := &csi.CreateVolumeRequest{Name: "a", CapacityRange: &csi.CapacityRange{RequiredBytes: 7}}
	first, err := client.CreateVolume(t.Context(), request)
	if err != nil || first.GetCapacityBytes() != 7 {
		t.Fatalf("CreateVolume = %v, %v", first, err)
	}
	first.CapacityBytes = 1
	again, err := client.CreateVolume(t.Context(), request)
	if err != nil || again.GetCapacityBytes() != 7 {
		t.Errorf("a changed answer reached the driver: %v, %v", again, err)
	}
}

// The warnings of a call that succeeds reach its caller, within the process and over a socket,
// without the secrets of the call.
func TestCollectWarnings_overBothConnections(t *testing.T) {
	driver := csidriver.New("memory.test")
	driver.Warnings = map[string]string{"CreateVolume": "größer als gewünscht, with hunter2", "DeleteVolume": "never shown"}
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == "DeleteVolume" {
			return csidriver.Fail(codes.Internal, "broken")
		}
		return nil
	}
	path := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Serve(listener)()
	remote, err := csiclient.Dial("unix://"+path, csiclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	for name, client := range map[string]*csiclient.Client{"in process": within(driver), "socket": remote} {
		ctx, warnings := csiclient.CollectWarnings(t.Context())
		secrets := map[string]string{"password": "hunter2"}
		_, err := client.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "a", Secrets: secrets})
		if got := warnings(); err != nil || !slices.Equal(got, []string{"größer als gewünscht, with (redacted)"}) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		ctx, warnings = csiclient.CollectWarnings(t.Context())
		if err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "a"}); err == nil || len(warnings()) > 0 {
			t.Errorf("%s: a failed call: %v with %q", name, err, warnings())
		}
		if _, err := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "a"}); err != nil {
			t.Errorf("%s: without a collector: %v", name, err)
		}
	}
}

func TestInProcess_errorsAreThoseOfASocket(t *testing.T) {
	driver := csidriver.New("memory.test")
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "DeleteVolume" {
			return csidriver.Fail(codes.Aborted, "busy")
		}
		return nil
	}
	client := within(driver)
	err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "a"})
	if !errors.Is(err, backend.ErrBusy) {
		t.Errorf("ABORTED became %v", err)
	}
	if number, ok := csiclient.CodeNumber(err); !ok || number != int32(codes.Aborted) {
		t.Errorf("its number is %d, %t", number, ok)
	}
	if _, err := client.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{}); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("an absent RPC is %v", err)
	}
	if _, err := client.NodeInfo(t.Context()); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("an absent service is %v", err)
	}
}

func TestInProcess_aHangingDriverDoesNotBlockACaller(t *testing.T) {
	driver := csidriver.New("memory.test")
	release := make(chan struct{})
	defer close(release)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateVolume" {
			<-release
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := within(driver).CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call past its deadline gave %v", err)
	}
}
