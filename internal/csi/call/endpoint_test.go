package call

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugin registers as a driver.
type plugin struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (p plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: p.name, Endpoint: p.endpoint}, nil
}

func serve(t *testing.T, path string, p plugin) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

func TestLocate(t *testing.T) {
	root := t.TempDir()
	usual := filepath.Join(root, "plugins", "a.example", "csi.sock")
	serve(t, usual, plugin{})
	serve(t, filepath.Join(root, "plugins_registry", "sub", "b.sock"), plugin{name: "b.example", endpoint: "/somewhere/b.sock"})
	for driver, want := range map[string]string{"a.example": usual, "b.example": "/somewhere/b.sock"} {
		if got, err := Locate(t.Context(), root, driver); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", driver, got, err, want)
		}
	}
	if _, err := Locate(t.Context(), root, "c.example"); err == nil || !strings.Contains(err.Error(), "there are: b.example") {
		t.Errorf("got %v", err)
	}
	if _, err := Locate(t.Context(), t.TempDir(), "c.example"); err == nil || !strings.Contains(err.Error(), "--endpoint") {
		t.Errorf("got %v", err)
	}
}
