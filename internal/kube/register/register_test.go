package register

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

const driver = "local.holdfast.dev"

// lines is a log that is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *lines) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *lines) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// offer runs a registration and returns its socket and a function that ends it.
func offer(t *testing.T, directory string, log *lines) (socket string, end func()) {
	t.Helper()
	server, err := New(Options{
		Directory: directory, Driver: driver, Endpoint: "/csi/csi.sock",
		Logger: slog.New(slog.NewTextHandler(log, nil)), Check: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the registration ended with %v", err)
		}
	})
	t.Cleanup(end)
	socket = filepath.Join(directory, driver+"-reg.sock")
	eventually(t, "the socket appears", func() bool { return present(socket) })
	return socket, end
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("timeout: %s", what)
}

// kubelet is a client of a registration socket. It waits, as the kubelet does:
// between bind(2) and listen(2) a socket has a file and refuses.
func kubelet(t *testing.T, socket string) registration.RegistrationClient {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return registration.NewRegistrationClient(connection)
}

func TestMain(m *testing.M) {
	peertest.Main()
	goleak.VerifyTestMain(m)
}

func TestRun_returnsTheDriversSocketToTheKubelet(t *testing.T) {
	socket, _ := offer(t, registry(t), &lines{})
	info, err := kubelet(t, socket).GetInfo(context.Background(), &registration.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetType() != "CSIPlugin" || info.GetName() != driver || info.GetEndpoint() != "/csi/csi.sock" ||
		strings.Join(info.GetSupportedVersions(), ",") != "1.0.0" {
		t.Errorf("GetInfo returns %v", info)
	}
}

func TestRun_staysAfterARefusal(t *testing.T) {
	log := &lines{}
	socket, _ := offer(t, registry(t), log)
	client := kubelet(t, socket)
	refusal := &registration.RegistrationStatus{Error: "name is taken"}
	if _, err := client.NotifyRegistrationStatus(context.Background(), refusal); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "name is taken") {
		t.Errorf("the log lacks the refusal: %s", log)
	}
	if _, err := client.GetInfo(context.Background(), &registration.InfoRequest{}); err != nil {
		t.Errorf("after a refusal the kubelet cannot ask again: %v", err)
	}
}

func TestRun_bindsAgainWhenTheSocketIsRemoved(t *testing.T) {
	directory := filepath.Join(registry(t), "plugins_registry")
	socket, _ := offer(t, directory, &lines{})
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket is back", func() bool { return present(socket) })
	if _, err := kubelet(t, socket).GetInfo(context.Background(), &registration.InfoRequest{}); err != nil {
		t.Errorf("the new socket does not answer: %v", err)
	}
}

func TestRun_replacesAStaleSocket(t *testing.T) {
	directory := registry(t)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(directory, driver+"-reg.sock")})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	socket, _ := offer(t, directory, &lines{})
	eventually(t, "the kubelet is answered", func() bool {
		_, err := kubelet(t, socket).GetInfo(context.Background(), &registration.InfoRequest{})
		return err == nil
	})
}

func TestRun_removesItsOwnSocketAtTheEnd(t *testing.T) {
	socket, end := offer(t, registry(t), &lines{})
	end()
	if present(socket) {
		t.Error("the socket is still there")
	}
}

func TestRun_leavesTheSocketOfAnotherProcess(t *testing.T) {
	log := &lines{}
	socket, end := offer(t, registry(t), log)
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	var other *unixsocket.Listener
	eventually(t, "another instance takes the name", func() bool {
		_ = os.Remove(socket)
		var err error
		other, err = unixsocket.Listen(context.Background(), socket)
		return err == nil
	})
	t.Cleanup(func() { _ = other.Close() })
	eventually(t, "the loser says so", func() bool { return strings.Contains(log.String(), "another process serves") })
	end()
	if !other.Owns() {
		t.Error("the first instance removed the socket of the second")
	}
}

func TestNew_refusesANameTooLongForASocket(t *testing.T) {
	_, err := New(Options{Directory: "/" + strings.Repeat("d", 100), Driver: driver, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "a unix socket has at most 107") {
		t.Errorf("New fails with %v, want the limit of socket paths", err)
	}
}

// The kubelet on Windows gets the path of the CSI socket in its own spelling
// (docs/reference/windows.md).
func TestEndpointOn_isNormalisedOnWindows(t *testing.T) {
	for endpoint, want := range map[string]string{
		`/var/lib/kubelet/plugins/x/csi.sock`:   `c:\var\lib\kubelet\plugins\x\csi.sock`,
		`C:\var\lib\kubelet\plugins\x\csi.sock`: `C:\var\lib\kubelet\plugins\x\csi.sock`,
		`C:\var\lib\kubelet/plugins/x/csi.sock`: `C:\var\lib\kubelet\plugins\x\csi.sock`,
	} {
		if got := endpointOn("windows", endpoint); got != want {
			t.Errorf("%s becomes %s", endpoint, got)
		}
		if got := endpointOn("linux", endpoint); got != endpoint {
			t.Errorf("%s becomes %s on Linux", endpoint, got)
		}
	}
}
