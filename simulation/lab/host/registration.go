package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

type socketChange = pluginwatch.Change

// startInstance starts a process of the driver, at an endpoint where one crashed, or at a
// new one if it is "".
func (w *world) startInstance(endpoint string) {
	w.made++
	socket := ""
	if endpoint == "" {
		socket, endpoint = fmt.Sprintf("/registry/%d.sock", w.made), fmt.Sprintf("/plugins/%d.sock", w.made)
	}
	inst := &instance{process: w.lab.Process(fmt.Sprintf("driver%d", w.made)), endpoint: endpoint, socket: socket}
	inst.ctx, inst.cancel = context.WithCancel(context.Background())
	w.instances[endpoint] = inst
	if socket != "" {
		w.sockets[socket] = endpoint
		w.announce(pluginwatch.Change{Socket: pluginwatch.Socket{Path: socket}})
	}
	close(w.arrived)
	w.arrived = make(chan struct{})
}

func (w *world) announce(change pluginwatch.Change) {
	if w.host != nil {
		w.host.changes <- change
	}
}

// crashInstance ends a process of the driver. Its sockets stay.
func (w *world) crashInstance(endpoint string) {
	inst := w.instances[endpoint]
	delete(w.instances, endpoint)
	inst.process.Crash()
	inst.cancel()
	ended := w.disconnects[endpoint]
	delete(w.disconnects, endpoint)
	for _, disconnected := range ended {
		disconnected()
	}
}

// removeInstance ends a process of the driver and removes its sockets.
func (w *world) removeInstance(endpoint string) {
	w.crashInstance(endpoint)
	w.removeSockets(endpoint)
}

func (w *world) removeSockets(endpoint string) {
	for _, socket := range slices.Sorted(maps.Keys(w.sockets)) {
		if w.sockets[socket] == endpoint {
			delete(w.sockets, socket)
			w.announce(pluginwatch.Change{Socket: pluginwatch.Socket{Path: socket}, Removed: true})
		}
	}
}

// watch reports the registration sockets to the host.
func (hp *hostProcess) watch(ctx context.Context, _ string, changes chan<- pluginwatch.Change) error {
	var there []pluginwatch.Change
	for _, socket := range slices.Sorted(maps.Keys(hp.w.sockets)) {
		there = append(there, pluginwatch.Change{Socket: pluginwatch.Socket{Path: socket}})
	}
	for _, change := range append(there, pluginwatch.Change{Scanned: true}) {
		if !send(ctx, changes, change) {
			return nil
		}
	}
	for {
		select {
		case change := <-hp.changes:
			if !send(ctx, changes, change) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func send(ctx context.Context, changes chan<- pluginwatch.Change, change pluginwatch.Change) bool {
	select {
	case changes <- change:
		return true
	case <-ctx.Done():
		return false
	}
}

var errRefused = errors.New("connection refused")

// Registrar implements plugins.Network.
func (hp *hostProcess) Registrar(_ context.Context, socket pluginwatch.Socket) (registration.RegistrationClient, io.Closer, error) {
	inst := hp.w.instances[hp.w.sockets[socket.Path]]
	if inst == nil {
		return nil, nil, errRefused
	}
	return &registrar{host: hp, endpoint: inst.endpoint}, io.NopCloser(nil), nil
}

// registrar is the registrar of an instance.
type registrar struct {
	host     *hostProcess
	endpoint string
}

// GetInfo implements registration.RegistrationClient.
func (r *registrar) GetInfo(ctx context.Context, _ *registration.InfoRequest, _ ...grpc.CallOption) (*registration.PluginInfo, error) {
	if err := r.pass(ctx, "GetInfo"); err != nil {
		return nil, err
	}
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationClient.
func (r *registrar) NotifyRegistrationStatus(
	ctx context.Context, _ *registration.RegistrationStatus, _ ...grpc.CallOption,
) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, r.pass(ctx, "NotifyRegistrationStatus")
}

func (r *registrar) pass(ctx context.Context, rpc string) error {
	fault, err := r.host.process.Pass(ctx, lab.Step{Kind: "call " + rpc, Object: r.endpoint, Faults: []string{"fails"}})
	switch {
	case err != nil:
		return err
	case fault != "" || r.host.w.instances[r.endpoint] == nil:
		return errRefused
	}
	return nil
}

// Dial implements plugins.Network.
func (hp *hostProcess) Dial(endpoint string, options csiclient.Options) (*csiclient.Client, error) {
	if options.Disconnected != nil {
		hp.w.disconnects[endpoint] = append(hp.w.disconnects[endpoint], options.Disconnected)
	}
	return csiclient.New(&link{host: hp, endpoint: endpoint, options: options}, options), nil
}

// Reach implements plugins.Network.
func (hp *hostProcess) Reach(_ context.Context, endpoint string, _ bool) error {
	if hp.w.instances[endpoint] == nil {
		return errRefused
	}
	return nil
}

// Appears implements plugins.Network.
func (hp *hostProcess) Appears(ctx context.Context, _ string, pause time.Duration) bool {
	limit := time.NewTimer(pause)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-limit.C:
	case <-hp.w.arrived:
	}
	return true
}
