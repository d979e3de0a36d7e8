package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
)

// A socket's file is there from bind(2) on, and refuses connections until
// listen(2): one that was made just now is tried again soon, any other is dead.
const (
	newbornAge   = time.Second
	newbornPause = 2 * time.Millisecond
	newbornLimit = 250 * time.Millisecond
)

// Registrar makes one attempt, so that a dead socket is known at once and the
// back-off stays ours.
func (sockets) Registrar(
	ctx context.Context, socket pluginwatch.Socket,
) (registration.RegistrationClient, io.Closer, error) {
	path := socket.Path
	if len(path) > client.MaximumSocketPath {
		return nil, nil, fmt.Errorf("the registration socket %s has %d bytes; a unix socket's path has %d at most",
			path, len(path), client.MaximumSocketPath)
	}
	probe, err := connect(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the registration socket: %w", err)
	}
	// Behind the path may be a later plugin by now, which is another worker's:
	// registered here, it would be unregistered with the socket that is gone.
	if now, _, err := pluginwatch.Identify(path); err != nil || now != socket.Identity {
		return nil, nil, errors.Join(fmt.Errorf("the registration socket %s was replaced", path), err, probe.Close())
	}
	first := make(chan net.Conn, 1)
	first <- probe
	connection, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case conn := <-first:
				return conn, nil
			default:
				return connect(ctx, path)
			}
		}))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect to the registration socket %s: %w", path, err), probe.Close())
	}
	return registration.NewRegistrationClient(connection), connection, nil
}

func connect(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	pause := newbornPause
	for start := time.Now(); ; pause *= 2 {
		connection, err := dialer.DialContext(ctx, "unix", path)
		if err == nil || time.Since(start) > newbornLimit || !isNewborn(path) {
			return connection, err
		}
		if concurrency.Sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}

func isNewborn(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	// Of a socket of the future, the clock was set back since.
	age := time.Since(info.ModTime())
	return -newbornAge < age && age < newbornAge
}

func (m *Manager) getInfo(
	ctx context.Context, plugin registration.RegistrationClient,
) (*registration.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timing.info)
	defer cancel()
	info, err := plugin.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the plugin who it is (GetInfo): %w", err)
	}
	return info, nil
}

func (m *Manager) notify(ctx context.Context, plugin registration.RegistrationClient, failure error) error {
	ctx, cancel := context.WithTimeout(ctx, m.timing.notify)
	defer cancel()
	status := &registration.RegistrationStatus{PluginRegistered: failure == nil}
	if failure != nil {
		status.Error = failure.Error()
	}
	if _, err := plugin.NotifyRegistrationStatus(ctx, status); err != nil {
		return fmt.Errorf("notify the plugin of its registration: %w", err)
	}
	return nil
}
