package nodeside

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// split creates partitions of the given mebibytes on the disk, and shows them. It adds
// each by ioctl, since not every kernel can read a partition table.
func (p *plugged) split(sizes ...int64) {
	p.m.t.Helper()
	device, err := os.OpenFile(p.loop.Path, os.O_RDWR, 0)
	p.m.must(err)
	defer device.Close()
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	p.m.must(err)
	info.Flags |= unix.LO_FLAGS_PARTSCAN
	p.m.must(unix.IoctlLoopSetStatus64(int(device.Fd()), info))
	start := int64(mebibyte)
	for i, size := range sizes {
		index := strconv.Itoa(i + 1)
		p.m.must(addPartition(device, i+1, start, size*mebibyte))
		start += size * mebibyte
		loop := filepath.Base(p.loop.Path)
		number, err := os.ReadFile(filepath.Join("/sys/block", loop, loop+"p"+index, "dev"))
		p.m.must(err)
		name := p.name + "p" + index
		p.m.attributes(filepath.Join(p.name, name), map[string]string{"partition": index + "\n", "dev": string(number)})
		parsed, err := sysfs{root: p.m.sys}.number(p.name, name)
		p.m.must(err)
		p.m.must(unix.Mknod(filepath.Join(p.m.dev, name), unix.S_IFBLK|0o660, int(parsed)))
	}
}

// addPartition is BLKPG_ADD_PARTITION (linux/blkpg.h).
func addPartition(device *os.File, index int, start, length int64) error {
	partition := unix.BlkpgPartition{Start: start, Length: length, Pno: int32(index)}
	arg := unix.BlkpgIoctlArg{Op: unix.BLKPG_ADD_PARTITION, Datalen: int32(unsafe.Sizeof(partition)), Data: (*byte)(unsafe.Pointer(&partition))}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg)))
	runtime.KeepAlive(&partition)
	if errno != 0 && errno != unix.EBUSY {
		return errno
	}
	return nil
}

func partition1() map[string]string { return map[string]string{keyPartition: "1"} }

func TestOpenDevice_opensThePartitionThatIsAskedFor(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 128*mebibyte)
	disk.split(40, 60)
	n := m.node()
	device, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA, VolumeContext: map[string]string{"partition": "2"}})
	m.must(err)
	defer device.Release()
	if device.Path != filepath.Join(m.dev, "nvme1n1p2") || device.Size != 60*mebibyte || device.Number == disk.loop.Number {
		t.Fatalf("device %+v", device)
	}
	devices, err := n.Devices(t.Context(), volumeA)
	if err != nil || len(devices) != 3 || devices[0].Number != disk.loop.Number || devices[2].Number != device.Number {
		t.Fatalf("devices %+v, %v", devices, err)
	}
	for _, whole := range []map[string]string{nil, {"partition": "0"}, {"partition": ""}} {
		again, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA, VolumeContext: whole})
		m.must(err)
		if again.Number != disk.loop.Number {
			t.Errorf("%v: %+v", whole, again)
		}
		m.must(again.Release())
	}
	_, err = n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA, VolumeContext: map[string]string{"partition": "3"}})
	if !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "no partition 3") {
		t.Error(err)
	}
	for _, bad := range []string{"-1", "x", "1; rm", "1000"} {
		if _, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA, VolumeContext: map[string]string{"partition": bad}}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A partition is formatted and mounted alone, is the volume's own for Unstage,
// and does not grow with the disk.
func TestEngine_stagesAPartition(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 128*mebibyte)
	disk.split(64)
	n := m.node()
	s := newStaging(m, n)
	for range 2 {
		m.must(s.stage(volumeA, "ext4", partition1()))
	}
	if err := n.CloseDevice(t.Context(), volumeA); !errors.Is(err, backend.ErrInUse) {
		t.Fatalf("closed a disk with a mounted partition: %v", err)
	}
	m.must(disk.file.Truncate(256 * mebibyte))
	_, err := disk.loop.SetCapacity()
	m.must(errors.Join(err, disk.loop.Close()))
	size, err := s.engine.Expand(t.Context(), node.ExpandRequest{VolumeID: volumeA, VolumePath: s.path})
	if err != nil || size != 256*mebibyte {
		t.Fatalf("%d, %v", size, err)
	}
	s.unstage(volumeA)
	if left := nodetest.MountsBelow(t, m.dir); len(left) != 0 {
		t.Fatalf("mounted: %v", left)
	}
}

func TestOpenDevice_readOnlyRefusesWrites(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 4*mebibyte)
	n := m.node()
	writable := m.open(n, volumeA)
	open := func() *backend.Device {
		device, err := n.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA, ReadOnly: true, Keep: true})
		m.must(err)
		t.Cleanup(func() { _ = device.Release() })
		return device
	}
	first, second := open(), open()
	if !first.ReadOnly || first.Number != writable.Number || first.Number != second.Number || first.Size != 4*mebibyte || writable.ReadOnly {
		t.Fatalf("devices %+v and %+v; want that of %+v", first, second, writable)
	}
	if file, err := os.OpenFile(first.Path, os.O_RDWR, 0); err == nil {
		_, err = file.WriteAt([]byte{1}, 0)
		if file.Close(); err == nil {
			t.Fatal("wrote through a read-only device")
		}
	}
	devices, err := n.Devices(t.Context(), volumeA)
	if err != nil || len(devices) != 1 || !devices[0].ReadOnly {
		t.Fatalf("devices %+v, %v", devices, err)
	}
	m.must(disk.file.Truncate(8 * mebibyte))
	_, err = disk.loop.SetCapacity()
	m.must(errors.Join(err, disk.loop.Close()))
	if size, err := n.ResizeDevice(t.Context(), volumeA); err != nil || size != 8*mebibyte {
		t.Fatalf("%d, %v", size, err)
	}
	m.must(errors.Join(first.Release(), second.Release(), writable.Release(), n.CloseDevice(t.Context(), volumeA)))
	if devices, err = n.Devices(t.Context(), volumeA); err != nil || len(devices) != 1 || devices[0].ReadOnly {
		t.Fatalf("after closing: %+v, %v; want the disk, writable", devices, err)
	}
}

// CloseDevice fails for a disk that is mounted in another mount namespace, such as that of
// another container.
func TestCloseDevice_refusesWhileTheDiskIsMountedAnywhere(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	n := m.node()
	s := newStaging(m, n)
	m.must(s.stage(volumeA, "ext4", nil))
	tree, err := unix.OpenTree(unix.AT_FDCWD, s.path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	m.must(err)
	m.must(unix.Unmount(s.path, 0))
	if err := n.CloseDevice(t.Context(), volumeA); !errors.Is(err, backend.ErrInUse) || !strings.Contains(err.Error(), "nvme1n1") {
		t.Errorf("%v", err)
	}
	m.must(unix.Close(tree))
	m.must(n.CloseDevice(t.Context(), volumeA))
	m.must(n.CloseDevice(t.Context(), volumeA))
}

// Between two reads of sysfs, a name may come to mean another disk.
func TestOpen_noticesThatTheDiskBecameAnother(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, mebibyte)
	n := m.node(func(o *Options) { o.Wait = 50 * time.Millisecond })
	w, err := newRequest(backend.DeviceRequest{VolumeID: volumeA}, false)
	m.must(err)
	for name, change := range map[string]func(){
		"another serial": func() { m.attributes("nvme1n1", map[string]string{"device/serial": "vol0123456789abcdef1"}) },
		"it is gone":     func() { disk.unplug() },
		"another number": func() { m.attributes("nvme1n1", map[string]string{"dev": "7:9999\n"}) },
	} {
		found, err := n.find(w)
		m.must(err)
		change()
		if file, err := n.open(*found); !errors.Is(err, errChanged) {
			_ = file.Close()
			t.Errorf("%s: %v", name, err)
		}
		_ = os.RemoveAll(filepath.Join(m.sys, "block", "nvme1n1"))
		_ = os.Remove(filepath.Join(m.dev, "nvme1n1"))
		m.attributes("nvme1n1", map[string]string{"device/serial": "vol0123456789abcdef0", "device/model": AmazonModel, "dev": numberText(disk.loop.Number)})
		disk.makeNode()
	}
}
