package register

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A watch replaces the frequent checks while the driver is registered, so that an
// idle host is not woken.
func TestRun_seesARemovedSocketAtOnceDespiteRareChecks(t *testing.T) {
	directory := registry(t)
	server, err := New(Options{
		Directory: directory, Driver: driver, Endpoint: "/csi/csi.sock", Logger: slog.New(slog.DiscardHandler),
		Check: 5 * time.Millisecond, RegisteredCheck: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	socket := filepath.Join(directory, driver+"-reg.sock")
	eventually(t, "the socket appears", func() bool { return present(socket) })
	_, err = kubelet(t, socket).NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is registered", func() bool { return server.Status().Registered })
	time.Sleep(50 * time.Millisecond) // from now on it checks once an hour
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket is there again", func() bool { return present(socket) })
}
