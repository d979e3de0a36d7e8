package nodeside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Sysfs and the serial number decide, not a name or a link.
func TestOpenDevice_findsAVolumeByItsSerial(t *testing.T) {
	m := newMachine(t)
	first, second := m.plug("nvme2n1", volumeB, 8*mebibyte), m.plug("nvme1n1", volumeA, 16*mebibyte)
	n := m.node()
	device := m.open(n, volumeA)
	if device.Number != second.loop.Number || device.Size != 16*mebibyte || device.SectorSize != 512 || device.ReadOnly || device.Discard {
		t.Fatalf("device %+v", device)
	}
	if other := m.open(n, volumeB); other.Number != first.loop.Number || other.Path != filepath.Join(m.dev, "nvme2n1") {
		t.Fatalf("device %+v", other)
	}
	devices, err := n.Devices(t.Context(), volumeA)
	if err != nil || len(devices) != 1 || devices[0].Number != second.loop.Number || devices[0].Close != nil {
		t.Fatalf("devices %+v, %v", devices, err)
	}
}

// One serial number may be the beginning of another.
func TestOpenDevice_doesNotTakeAPrefixForTheSerial(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, mebibyte)
	n := m.node(func(o *Options) { o.Wait = 50 * time.Millisecond })
	if _, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeC}); !errors.Is(err, backend.ErrUnavailable) {
		t.Fatal(err)
	}
	short := m.plug("nvme2n1", volumeC, mebibyte)
	if device := m.open(n, volumeC); device.Number != short.loop.Number {
		t.Fatalf("device %+v", device)
	}
}

func TestOpenDevice_rejectsAnInvalidVolumeID(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	for _, id := range []string{"", "vol-absent", "../x", "vol-0123456789ABCDEF0", "vol-0123456789abcdef0 ", "i-0123456789abcdef0"} {
		if _, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: id}); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
		if devices, err := n.Devices(t.Context(), id); err != nil || len(devices) != 0 {
			t.Errorf("devices of %q: %v, %v", id, devices, err)
		}
		if err := n.CloseDevice(t.Context(), id); err != nil {
			t.Errorf("close %q: %v", id, err)
		}
	}
}

// OpenDevice waits for a device that appears shortly after the attachment.
func TestOpenDevice_waitsForADiskThatIsPluggedMeanwhile(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	hidden := m.loop(mebibyte)
	hidden.name = "nvme1n1"
	go func() {
		time.Sleep(30 * time.Millisecond)
		m.attributes("nvme1n1", map[string]string{"device/serial": "vol0123456789abcdef0", "device/model": AmazonModel, "dev": numberText(hidden.loop.Number)})
		_ = unix.Mknod(filepath.Join(m.dev, "nvme1n1"), unix.S_IFBLK|0o660, int(hidden.loop.Number))
	}()
	started := time.Now()
	if device := m.open(n, volumeA); device.Number != hidden.loop.Number {
		t.Fatalf("device %+v", device)
	}
	if took := time.Since(started); took > 30*time.Second { // and not only at the last poll, after a minute
		t.Fatalf("took %s", took)
	}
}

// The device node of a disk may exist shortly before /sys/block has the disk.
func TestOpenDevice_waitsWhenTheNodeComesFirst(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	hidden := m.loop(mebibyte)
	hidden.name = "nvme1n1"
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = unix.Mknod(filepath.Join(m.dev, "nvme1n1"), unix.S_IFBLK|0o660, int(hidden.loop.Number))
		time.Sleep(100 * time.Millisecond)
		m.attributes("nvme1n1", map[string]string{"device/serial": "vol0123456789abcdef0", "device/model": AmazonModel, "dev": numberText(hidden.loop.Number)})
	}()
	m.open(n, volumeA)
}

// Concurrent callers share one watch, and each gets its own disk.
func TestOpenDevice_servesManyThatWait(t *testing.T) {
	m := newMachine(t)
	n := m.node(func(o *Options) { o.Wait = time.Minute })
	const volumes = 8
	opened := make(chan error, volumes)
	id := func(i int) string { return fmt.Sprintf("vol-%017x", i) }
	for i := range volumes {
		go func() {
			device, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: id(i)})
			if err == nil && device.Path != filepath.Join(m.dev, fmt.Sprintf("nvme%dn1", volumes-i)) {
				err = fmt.Errorf("volume %d is %s", i, device.Path)
			}
			opened <- errors.Join(err, device.Release())
		}()
	}
	for i := range volumes {
		m.plug(fmt.Sprintf("nvme%dn1", volumes-i), id(i), mebibyte)
	}
	for range volumes {
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}

func TestOpenDevice_waitsNoLongerThanItsBoundAndItsCaller(t *testing.T) {
	m := newMachine(t)
	n := m.node(func(o *Options) { o.Wait = 100 * time.Millisecond })
	_, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA})
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "vol0123456789abcdef0") {
		t.Fatal(err)
	}
	n = m.node(func(o *Options) { o.Wait = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.OpenDevice(ctx, backend.DeviceRequest{VolumeID: volumeA}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// Files that must not be opened under a volume's name.
func TestOpenDevice_refusesWhatIsNotTheVolumesOwnNode(t *testing.T) {
	node := func(m *machine) string { return filepath.Join(m.dev, "nvme1n1") }
	tests := []struct {
		name  string
		alter func(m *machine, own, other *plugged)
		want  error
	}{
		{"a symbolic link", func(m *machine, _, other *plugged) {
			m.must(os.Remove(node(m)))
			m.must(os.Symlink(filepath.Join(m.dev, other.name), node(m)))
		}, backend.ErrPrecondition},
		{"a symbolic link to itself", func(m *machine, _, _ *plugged) {
			m.must(os.Rename(node(m), node(m)+"-real"))
			m.must(os.Symlink(node(m)+"-real", node(m)))
		}, backend.ErrPrecondition},
		{"a stale node, of another disk", func(m *machine, _, other *plugged) {
			m.must(os.Remove(node(m)))
			m.must(unix.Mknod(node(m), unix.S_IFBLK|0o660, int(other.loop.Number)))
		}, backend.ErrUnavailable},
		{"a file", func(m *machine, _, _ *plugged) {
			m.must(os.Remove(node(m)))
			m.must(os.WriteFile(node(m), nil, 0o600))
		}, backend.ErrPrecondition},
		{"a pipe that would block", func(m *machine, _, _ *plugged) {
			m.must(os.Remove(node(m)))
			m.must(unix.Mkfifo(node(m), 0o600))
		}, backend.ErrPrecondition},
		{"no node at all", func(m *machine, _, _ *plugged) { m.must(os.Remove(node(m))) }, backend.ErrUnavailable},
		{"the serial on two disks", func(m *machine, _, other *plugged) {
			m.attributes(other.name, map[string]string{"device/serial": "vol0123456789abcdef0"})
		}, backend.ErrPrecondition},
		{"another model", func(m *machine, _, _ *plugged) {
			m.attributes("nvme1n1", map[string]string{"device/model": "Amazon EC2 NVMe Instance Storage"})
		}, backend.ErrPrecondition},
		{"a disk of the network", func(m *machine, _, _ *plugged) {
			m.attributes("nvme1n1", map[string]string{"device/transport": "tcp\n"})
		}, backend.ErrPrecondition},
		{"a disk of the network that could have several paths", func(m *machine, _, _ *plugged) {
			m.must(os.Remove(filepath.Join(m.sys, "block/nvme1n1/device/transport")))
			m.attributes("nvme1n1", map[string]string{"device/nvme1/transport": "pcie\n", "device/nvme4/transport": "tcp\n"})
		}, backend.ErrPrecondition},
		{"a second namespace", func(m *machine, _, _ *plugged) {
			m.attributes("nvme1n1", map[string]string{"nsid": "2\n"})
		}, backend.ErrPrecondition},
		{"a disk that another boot left in the list", func(m *machine, _, _ *plugged) {
			m.attributes("nvme1n1", map[string]string{"diskseq": "1\n"})
		}, backend.ErrUnavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			own, other := m.plug("nvme1n1", volumeA, mebibyte), m.plug("nvme2n1", volumeB, mebibyte)
			test.alter(m, own, other)
			n := m.node(func(o *Options) { o.Wait = 50 * time.Millisecond })
			device, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA})
			if !errors.Is(err, test.want) {
				t.Fatalf("%+v, %v; want %v", device, err, test.want)
			}
		})
	}
}

// With AnyModel, as for emulated disks, the serial number alone decides.
func TestOpenDevice_takesAnyModelWhenTold(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, mebibyte)
	m.attributes("nvme1n1", map[string]string{"device/model": "QEMU NVMe Ctrl"})
	m.open(m.node(func(o *Options) { o.Model = AnyModel }), volumeA)
	m.open(m.node(func(o *Options) { o.Model = "QEMU NVMe Ctrl" }), volumeA)
}

func TestResizeDevice_seesTheSizeOfNow(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, mebibyte)
	n := m.node()
	m.must(disk.file.Truncate(3 * mebibyte))
	_, err := disk.loop.SetCapacity()
	m.must(err)
	m.must(disk.loop.Close())
	for range 2 {
		if size, err := n.ResizeDevice(t.Context(), volumeA); err != nil || size != 3*mebibyte {
			t.Fatalf("%d, %v", size, err)
		}
	}
	if size, err := n.ResizeDevice(t.Context(), volumeB); err != nil || size != 0 {
		t.Fatalf("with no device: %d, %v", size, err)
	}
}
