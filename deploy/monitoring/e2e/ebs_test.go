//go:build monitoring

package e2e

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

// account is an emulated AWS account with the driver's controller and one node.
type account struct {
	t *testing.T
	*lab.Lab
	controller, node         *lab.Process
	controllerPage, nodePage string
}

func newAccount(t *testing.T) *account {
	t.Helper()
	root, err := os.MkdirTemp("", "hm") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	l, err := lab.Open(t.Context(), lab.Options{
		Holdfast: programs.holdfast, Emulator: programs.emulator, Root: root, Devices: true, EmulatorFlags: []string{"--times=instant"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	a := &account{t: t, Lab: l, controllerPage: address(t), nodePage: address(t)}
	if a.controller, err = l.Controller(t.Context(), "controller", "--metrics-address="+a.controllerPage); err != nil {
		t.Fatal(err)
	}
	if a.node, err = l.Node(t.Context(), lab.Pair()[0], "--metrics-address="+a.nodePage); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *account) targets() []target {
	return []target{{job: "ebs-controller", address: a.controllerPage}, {job: "ebs-node", address: a.nodePage, native: true}}
}

// ask sends a request to the control interface of the emulator.
func (a *account) ask(method, path, body string) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.Control()+path, bytes.NewBufferString(body))
	if err != nil {
		a.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode >= 300 {
		a.t.Fatalf("%s %s: %s", method, path, response.Status)
	}
}

// create makes a volume in the zone of the node.
func (a *account) create(name string) (string, error) {
	volume, err := a.controller.Client.CreateVolume(a.t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, Parameters: map[string]string{"type": "gp3"},
		VolumeCapabilities:        []*csi.VolumeCapability{writer()},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.ebs.csi.aws.com/zone": lab.Pair()[0].Zone}}}},
	})
	return volume.GetVolumeId(), err
}

func writer() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

// keep repeats a call until the returned function ends that, as controllers do.
func (a *account) keep(call func()) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				call()
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// TestAlerts_ofEBS makes EC2 throttle and refuse requests, and a guest keep a device.
func TestAlerts_ofEBS(t *testing.T) {
	a := newAccount(t)
	w := watch(t, a.targets()...)
	volume, err := a.create("first")
	if err != nil {
		t.Fatal(err)
	}
	w.quiet()
	t.Run("throttled", func(t *testing.T) { a.throttled(w.in(t)) })
	t.Run("refused", func(t *testing.T) { a.refused(w.in(t)) })
	t.Run("busy", func(t *testing.T) { a.busy(w.in(t), volume) })
}

func (w *watcher) in(t *testing.T) *watcher { return &watcher{t: t, api: w.api} }

func (a *account) throttled(w *watcher) {
	a.ask(http.MethodPost, "/faults", `{"id": "limit", "kind": "throttle", "action": "DescribeVolumes"}`)
	end := a.keep(func() { _, _ = a.create("throttled") })
	w.fires("HoldfastEC2Throttled")
	a.ask(http.MethodDelete, "/faults/limit", "")
	end()
	w.stops("HoldfastEC2Throttled")
}

func (a *account) refused(w *watcher) {
	a.ask(http.MethodPost, "/faults", `{"id": "role", "kind": "error", "action": "DeleteVolume", "code": "UnauthorizedOperation", "status": 403}`)
	other, err := a.create("refused")
	if err != nil {
		w.t.Fatal(err)
	}
	end := a.keep(func() {
		_ = a.controller.Client.DeleteVolume(a.t.Context(), &csi.DeleteVolumeRequest{VolumeId: other})
	})
	w.fires("HoldfastEC2Fails")
	a.ask(http.MethodDelete, "/faults/role", "")
	end()
	w.stops("HoldfastEC2Fails", "HoldfastCallFails")
}

// keepBusy attaches a volume and detaches it from a guest that does not release it, until
// the returned function repairs that. Detachments are counted from a minute on.
func (a *account) keepBusy(volume string) (repair func()) {
	a.t.Helper()
	instance := lab.Pair()[0].ID
	if _, err := a.controller.Client.ControllerPublishVolume(a.t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: volume, NodeId: instance, VolumeCapability: writer(),
	}); err != nil {
		a.t.Fatal(err)
	}
	a.ask(http.MethodPost, "/volume-faults", `{"kind": "stays-busy", "volumeId": "`+volume+`"}`)
	end := a.keep(func() {
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
		defer cancel()
		_ = a.controller.Client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: instance})
	})
	return sync.OnceFunc(func() {
		a.ask(http.MethodDelete, "/volume-faults", "")
		end()
	})
}

func (a *account) busy(w *watcher, volume string) {
	repair := a.keepBusy(volume)
	defer repair()
	w.fires("HoldfastDetachBusy")
	repair()
	w.stops("HoldfastDetachBusy", "HoldfastCallFails", "HoldfastDriverHangs")
}
