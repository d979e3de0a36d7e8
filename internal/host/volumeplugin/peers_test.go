package volumeplugin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func TestMain(m *testing.M) {
	peertest.Main()
	os.Exit(m.Run())
}

// A process that misbehaves at the plugin's socket keeps no container engine from its
// volumes.
func TestPlugin_survivesHostilePeers(t *testing.T) {
	opened, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	directory, err := os.MkdirTemp("", "vp") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(directory, "p.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	plugin := &Plugin{Host: waitingHost{}, Store: opened, Logger: slog.New(slog.DiscardHandler)}
	go func() { done <- plugin.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		for _, err := range []error{<-done, opened.Close(), os.RemoveAll(directory)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	peertest.Attack(t, peertest.Server{Network: "unix", Address: socket, Path: "/VolumeDriver.List", Ask: func(ctx context.Context) error {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/VolumeDriver.List", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s, %w", answer.Status, err)
		}
		return nil
	}})
}
