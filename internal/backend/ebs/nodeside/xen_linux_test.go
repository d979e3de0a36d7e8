package nodeside

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// plugXen shows a disk as a guest of Xen does.
func (m *machine) plugXen(name, node string, size int64) *plugged {
	m.t.Helper()
	p := m.loop(size)
	p.name = name
	m.attributes(name, map[string]string{"device/devtype": "vbd\n", "device/nodename": node + "\n", "dev": numberText(p.loop.Number)})
	p.makeNode()
	return p
}

func published(device string) backend.DeviceRequest {
	return backend.DeviceRequest{VolumeID: volumeA, PublishContext: map[string]string{"devicePath": device}}
}

// The slot counts, not the letters that the guest shows it by: some guests show
// sdf as xvdj.
func TestOpenDevice_findsTheDiskOfXenByItsSlot(t *testing.T) {
	m := newMachine(t)
	m.plugXen("xvdf", "device/vbd/51728", mebibyte) // is xvdb
	right := m.plugXen("xvdj", "device/vbd/51792", mebibyte)
	n := m.node()
	for _, name := range []string{"/dev/xvdf", "/dev/sdf"} {
		device, err := n.OpenDevice(t.Context(), published(name))
		m.must(err)
		if device.Number != right.loop.Number {
			t.Errorf("%s: %+v", name, device)
		}
		m.must(device.Release())
	}
	// Later requests lack the name of the attachment, as in NodeUnstageVolume. The record
	// identifies the disk then, also in another process.
	for _, node := range []*Node{n, m.node()} {
		devices, err := node.Devices(t.Context(), volumeA)
		if err != nil || len(devices) != 1 || devices[0].Number != right.loop.Number {
			t.Fatalf("%+v, %v", devices, err)
		}
	}
	m.must(n.CloseDevice(t.Context(), volumeA))
	if devices, err := n.Devices(t.Context(), volumeA); err != nil || len(devices) != 0 {
		t.Fatalf("%+v, %v", devices, err)
	}
}

// After a detach the slot may have another volume.
func TestDevices_forgetsADiskOfXenThatWasPluggedAnew(t *testing.T) {
	m := newMachine(t)
	disk := m.plugXen("xvdf", "device/vbd/51792", mebibyte)
	n := m.node()
	device, err := n.OpenDevice(t.Context(), published("/dev/xvdf"))
	m.must(err)
	m.must(device.Release())
	disk.unplug()
	m.must(disk.loop.Detach())
	disk.loop = nil
	m.plugXen("xvdf", "device/vbd/51792", mebibyte)
	if devices, err := n.Devices(t.Context(), volumeA); err != nil || len(devices) != 0 {
		t.Fatalf("%+v, %v", devices, err)
	}
}

// On Nitro the name of the attachment is a label; a disk of that name is no
// volume.
func TestOpenDevice_takesNoNameWhereThereAreSerials(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme0n1", volumeB, mebibyte)
	m.plugXen("xvdf", "device/vbd/51792", mebibyte)
	n := m.node(func(o *Options) { o.Wait = 20 * time.Millisecond })
	if _, err := n.OpenDevice(t.Context(), published("/dev/xvdf")); !errors.Is(err, backend.ErrUnavailable) {
		t.Fatal(err)
	}
}

func TestOpenDevice_refusesNamesThatAreNone(t *testing.T) {
	m := newMachine(t)
	m.plugXen("xvdf", "device/vbd/51792", mebibyte)
	m.attributes("sda", map[string]string{"device/model": "a disk of SCSI", "dev": "8:0\n"})
	n := m.node(func(o *Options) { o.Wait = 20 * time.Millisecond })
	for name, want := range map[string]error{"/etc/passwd": backend.ErrInvalid, "/dev/../x": backend.ErrInvalid, "/dev/sda": backend.ErrUnavailable} {
		if _, err := n.OpenDevice(t.Context(), published(name)); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", name, err, want)
		}
	}
}
