package host_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// vendorDriver is the name of a driver that is in the memory of the test.
const vendorDriver = "vendor.example"

// serveVendor registers a driver of a vendor with the host: one that attaches volumes,
// mounts a tmpfs for each, and calls Before first.
func (m *machine) serveVendor(before func(context.Context, string, any) error) {
	m.t.Helper()
	d := csidriver.New(vendorDriver)
	d.Before = before
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	d.Node = append(d.Node, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	d.Publish, d.Unpublish = publishTmpfs, unpublishTmpfs
	endpoint := filepath.Join(filepath.Dir(m.root), "vendor.sock")
	stop := d.Serve(listenUnix(m.t, endpoint))
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, vendorRegistrar{endpoint: endpoint})
	registry := filepath.Join(m.root, "plugins_registry")
	if err := os.MkdirAll(registry, 0o750); err != nil {
		m.t.Fatal(err)
	}
	listener, ended := listenUnix(m.t, filepath.Join(registry, vendorDriver+"-reg.sock")), sync.WaitGroup{}
	ended.Go(func() { _ = server.Serve(listener) }) // until Stop
	m.t.Cleanup(func() {
		server.Stop()
		ended.Wait()
		stop()
	})
}

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// vendorRegistrar says where the driver is.
type vendorRegistrar struct {
	registration.UnimplementedRegistrationServer

	endpoint string
}

// GetInfo is the RPC.
func (r vendorRegistrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: vendorDriver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus is the RPC.
func (r vendorRegistrar) NotifyRegistrationStatus(
	context.Context, *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func publishTmpfs(request *csi.NodePublishVolumeRequest) error {
	if err := os.Mkdir(request.GetTargetPath(), 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	return unix.Mount("vendor", request.GetTargetPath(), "tmpfs", 0, "size=64k")
}

func unpublishTmpfs(request *csi.NodeUnpublishVolumeRequest) error {
	for unix.Unmount(request.GetTargetPath(), 0) == nil {
		continue
	}
	if err := os.Remove(request.GetTargetPath()); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
