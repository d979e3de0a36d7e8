package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socket returns a short path: the name of a test can be longer than a
// socket's path may be.
func socket(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "csi") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return filepath.Join(directory, "csi.sock")
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func dial(t *testing.T, path string, options Options) *Client {
	t.Helper()
	options.Driver = "d.example"
	client, err := Dial("unix://"+path, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestNew_worksInsideTheProcess(t *testing.T) {
	pipe := bufconn.Listen(1 << 16)
	defer csidriver.New("d.example").Serve(pipe)()
	connection, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	info, err := New(connection, Options{}).PluginInfo(t.Context())
	if err != nil || info.GetName() != "d.example" {
		t.Fatal(info, err)
	}
}

func TestCapabilities_areAskedOncePerConnection(t *testing.T) {
	path := socket(t)
	driver := csidriver.New("d.example")
	stop := driver.Serve(listen(t, path))
	lost := make(chan struct{}, 8)
	client := dial(t, path, Options{Disconnected: func() { lost <- struct{}{} }})
	for range 3 {
		node, err := client.NodeCapabilities(t.Context())
		if err != nil || !node.Stage || node.MountGroup {
			t.Fatal(node, err)
		}
		controller, err := client.ControllerCapabilities(t.Context())
		if err != nil || !controller.Clone || controller.Attach {
			t.Fatal(controller, err)
		}
	}
	if n, c := driver.Count("NodeGetCapabilities"), driver.Count("ControllerGetCapabilities"); n != 1 || c != 1 {
		t.Errorf("asked %d and %d times", n, c)
	}
	stop()
	<-lost
	// The next version of the driver can do more.
	driver.Node = append(driver.Node, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	defer driver.Serve(listen(t, path))()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		node, err := client.NodeCapabilities(t.Context())
		if err == nil && node.MountGroup {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a reconnect: %v, %v", node, err)
		}
	}
}

func TestCapabilities_aDriverWithoutControllerIsNotAskedForIts(t *testing.T) {
	path := socket(t)
	driver := csidriver.New("d.example")
	driver.Plugin = nil
	defer driver.Serve(listen(t, path))()
	can, err := dial(t, path, Options{}).ControllerCapabilities(t.Context())
	if err != nil || can != (ControllerCapabilities{}) || driver.Count("ControllerGetCapabilities") != 0 {
		t.Fatal(can, err)
	}
}

func TestErrors_areSentinels(t *testing.T) {
	cases := []struct {
		code codes.Code
		want error
	}{
		{codes.Canceled, context.Canceled}, {codes.DeadlineExceeded, context.DeadlineExceeded}, {codes.InvalidArgument, backend.ErrInvalid},
		{codes.NotFound, backend.ErrNotFound}, {codes.AlreadyExists, backend.ErrExists}, {codes.Aborted, backend.ErrBusy},
		{codes.FailedPrecondition, backend.ErrPrecondition}, {codes.ResourceExhausted, backend.ErrNoSpace}, {codes.OutOfRange, backend.ErrOutOfRange},
		{codes.Unimplemented, backend.ErrUnsupported}, {codes.Unavailable, backend.ErrUnavailable}, {codes.DataLoss, backend.ErrDataLoss},
		{codes.Internal, claim.ErrDriverFailed}, {codes.Unknown, claim.ErrDriverFailed}, {codes.PermissionDenied, claim.ErrDriverFailed},
	}
	path := socket(t)
	driver := csidriver.New("d.example")
	var answer codes.Code
	driver.Before = func(context.Context, string, any) error { return csidriver.Fail(answer, "because") }
	defer driver.Serve(listen(t, path))()
	client := dial(t, path, Options{})
	for _, c := range cases {
		answer = c.code
		err := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1"})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v does not wrap %v", c.code, err, c.want)
		}
		if want := "driver d.example: DeleteVolume vol-1: " + c.code.String() + ": because"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if Message(err) != "because" {
			t.Errorf("message %q", Message(err))
		}
	}
}

// Drivers show the command that failed, with its arguments.
func TestErrors_doNotRepeatSecrets(t *testing.T) {
	path := socket(t)
	driver := csidriver.New("d.example")
	driver.Before = func(context.Context, string, any) error {
		return csidriver.Fail(codes.Internal, "mount -o user=root,password=hunter2,token=ey.J0 failed")
	}
	defer driver.Serve(listen(t, path))()
	var log bytes.Buffer
	client := dial(t, path, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	err := client.Invoke(t.Context(), "/csi.v1.Node/NodePublishVolume", &csi.NodePublishVolumeRequest{
		VolumeId: "vol-1", Secrets: map[string]string{"password": "hunter2"}, VolumeContext: map[string]string{message.TokensKey: "ey.J0"},
	}, &csi.NodePublishVolumeResponse{})
	const want = "mount -o user=root,password=(redacted),token=(redacted) failed"
	if err == nil || Message(err) != want || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if said := log.String(); !strings.Contains(said, want) || strings.Contains(said, "hunter2") {
		t.Errorf("the log has %s", said)
	}
}

func TestCall_hasADefaultDeadline(t *testing.T) {
	path := socket(t)
	driver := csidriver.New("d.example")
	driver.Before = func(ctx context.Context, _ string, _ any) error {
		<-ctx.Done()
		return ctx.Err()
	}
	defer driver.Serve(listen(t, path))()
	client := dial(t, path, Options{Timeout: 20 * time.Millisecond})
	if err := client.Probe(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestCall_withoutADriverIsUnavailable(t *testing.T) {
	client := dial(t, socket(t), Options{})
	if err := client.Probe(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestCall_logsNoSecret(t *testing.T) {
	path := socket(t)
	defer csidriver.New("d.example").Serve(listen(t, path))()
	var log bytes.Buffer
	client := dial(t, path, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	_, err := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "pvc-1", Secrets: map[string]string{"password": "hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "rpc=CreateVolume volume=pvc-1") || strings.Contains(text, "hunter2") || strings.Contains(text, "password") {
		t.Errorf("the log says %s", text)
	}
}

func TestSocketPath(t *testing.T) {
	long := "/" + strings.Repeat("x", 107)
	cases := []struct{ endpoint, path, err string }{
		{"/run/csi.sock", "/run/csi.sock", ""},
		{"unix:///run/csi.sock", "/run/csi.sock", ""},
		{"unix:/run/csi.sock", "/run/csi.sock", ""},
		{"", "", "endpoint is empty"},
		{"unix://", "", "endpoint is empty"},
		{long, "", "has 108 bytes; a unix socket's path has 107"},
	}
	for _, c := range cases {
		path, err := SocketPath(c.endpoint)
		if path != c.path || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v", c.endpoint, path, err)
		}
	}
}
