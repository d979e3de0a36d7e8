package disk

import (
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// The node half of the backend finds what an instance shows, as it would on
// Nitro: it waits for it, sees it grow, and sees it go.
func TestNodeHalf_findsTheDeviceOfItsInstance(t *testing.T) {
	w, d := newWorld(t, nodetest.Dir(t))
	defer func() { must(t, w.Close()) }()
	instance, volume := runInstance(t, w), create(t, w, "")
	node, err := nodeside.New(nodeside.Options{
		SysRoot: d.path(instance, "sys"), DevRoot: d.path(instance, "dev"), StateDir: t.TempDir(), Wait: time.Minute,
	})
	must(t, err)
	defer func() { must(t, node.Close()) }()
	opened := make(chan *backend.Device)
	go func() {
		defer close(opened)
		device, err := node.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volume, PublishContext: map[string]string{"devicePath": "/dev/xvdba"}})
		if err != nil {
			t.Error(err)
			return
		}
		opened <- device
	}()
	time.Sleep(50 * time.Millisecond) // so that it has to wait, as a rule
	attach(t, w, volume, instance, "/dev/xvdba")
	device := <-opened
	if device == nil {
		t.FailNow()
	}
	if device.Size != gibibyte || device.Number != d.loops[volume].Number {
		t.Errorf("%+v", device)
	}
	must(t, device.Release())
	must(t, d.GrowVolume(volume, 2))
	if size, err := node.ResizeDevice(t.Context(), volume); err != nil || size != 2*gibibyte {
		t.Errorf("%d bytes, %v", size, err)
	}
	must(t, node.CloseDevice(t.Context(), volume))
	must(t, d.Detach(instance, volume, false))
	if left, err := node.Devices(t.Context(), volume); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// On an instance of Xen, whose disks have no serial numbers, it goes by the slot
// that the attachment asked for.
func TestNodeHalf_findsTheDeviceOfAXenInstance(t *testing.T) {
	w, d := newWorld(t, nodetest.Dir(t))
	defer func() { must(t, w.Close()) }()
	instance, err := w.RunInstance(world.InstanceSpec{Type: "t2.micro"})
	must(t, err)
	first, second := create(t, w, ""), create(t, w, "")
	attach(t, w, first, instance, "/dev/xvdba")
	attach(t, w, second, instance, "/dev/sdf")
	node, err := nodeside.New(nodeside.Options{
		SysRoot: d.path(instance, "sys"), DevRoot: d.path(instance, "dev"), StateDir: t.TempDir(), Wait: time.Minute,
	})
	must(t, err)
	defer func() { must(t, node.Close()) }()
	for volume, name := range map[string]string{first: "/dev/xvdba", second: "/dev/sdf"} {
		device, err := node.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volume, PublishContext: map[string]string{"devicePath": name}})
		must(t, err)
		if device.Number != d.loops[volume].Number {
			t.Errorf("%s: %+v", name, device)
		}
		must(t, device.Release())
		must(t, node.CloseDevice(t.Context(), volume))
		must(t, d.Detach(instance, volume, false))
	}
}
