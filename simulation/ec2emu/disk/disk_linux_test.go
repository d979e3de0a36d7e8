package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const (
	instanceA = "i-0123456789abcdef0"
	instanceB = "i-0123456789abcdef1"
	volumeA   = "vol-0123456789abcdef0"
	volumeB   = "vol-0123456789abcdef1"
	snapshotA = "snap-0123456789abcdef0"
)

func open(t *testing.T, dir string) *Disks {
	t.Helper()
	devices, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return devices.(*Disks)
}

// start opens a directory until the end of the test, with two volumes.
func start(t *testing.T) *Disks {
	t.Helper()
	d := open(t, nodetest.Dir(t))
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []string{volumeA, volumeB} {
		must(t, d.CreateVolume(id, 1, world.DataSource{}))
	}
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func to(instance, volume string) world.DeviceAttachment {
	return world.DeviceAttachment{InstanceID: instance, VolumeID: volume, Name: "/dev/xvdba"}
}

func (d *Disks) path(instance string, elements ...string) string {
	return filepath.Join(append([]string{d.dir, instancesDir, instance}, elements...)...)
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return strings.TrimSuffix(string(data), "\n")
}

func numberOf(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Stat_t
	must(t, unix.Stat(path, &s))
	return s.Rdev
}

// write writes to a device and waits for the data to be on it.
func write(t *testing.T, path, text string, at int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = file.WriteAt([]byte(text), at)
	must(t, errors.Join(err, file.Sync(), file.Close()))
}

func wantData(t *testing.T, path, text string, at int64) {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	got := make([]byte, len(text))
	_, err = file.ReadAt(got, at)
	must(t, errors.Join(err, file.Close()))
	if !bytes.Equal(got, []byte(text)) {
		t.Errorf("%s has %q at %d; want %q", path, got, at, text)
	}
}

func absent(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

func TestAttach_showsADeviceAsOnNitro(t *testing.T) {
	d := start(t)
	must(t, d.Attach(to(instanceA, volumeB)))
	must(t, d.Attach(to(instanceA, volumeA)))
	must(t, d.Attach(to(instanceA, volumeA)))
	if serial := read(t, d.path(instanceA, "sys/block/nvme1n1/device/serial")); serial != "vol0123456789abcdef0" {
		t.Errorf("serial %q", serial)
	}
	if model := read(t, d.path(instanceA, "sys/block/nvme1n1/device/model")); len(model) != 40 || strings.TrimSpace(model) != Model {
		t.Errorf("model %q", model)
	}
	if size := read(t, d.path(instanceA, "sys/block/nvme1n1/size")); size != "2097152" {
		t.Errorf("size %q", size)
	}
	if serial := read(t, d.path(instanceA, "sys/class/nvme/nvme0/serial")); serial != "vol0123456789abcdef1" {
		t.Errorf("serial of the first %q", serial)
	}
	node := d.path(instanceA, "dev/nvme1n1")
	if numberOf(t, node) != d.loops[volumeA].Number {
		t.Error("the node is not the loop device's")
	}
	write(t, node, "hello", 4096)
	wantData(t, filepath.Join(d.dir, volumeFile(volumeA)), "hello", 4096)

	must(t, d.Detach(instanceA, volumeA, false))
	absent(t, node, d.path(instanceA, "sys/block/nvme1n1"), d.path(instanceA, "sys/class/nvme/nvme1"))
	nodetest.NoLeaks(t, filepath.Join(d.dir, volumeFile(volumeA)))
	must(t, d.Detach(instanceA, volumeA, false))
	if len(d.intents) != 1 {
		t.Errorf("recorded %v", d.intents)
	}
}

func TestAttach_toAXenGuestHasTheRequestedName(t *testing.T) {
	d := start(t)
	a := to(instanceA, volumeA)
	a.Name, a.Xen = "/dev/sdf", true
	must(t, d.Attach(a))
	if numberOf(t, d.path(instanceA, "dev/xvdf")) != d.loops[volumeA].Number {
		t.Error("the node is not the loop device's")
	}
	absent(t, d.path(instanceA, "sys/block/xvdf/device/serial"))
	if node := read(t, d.path(instanceA, "sys/block/xvdf/device/nodename")); node != "device/vbd/268436736" {
		t.Errorf("the disk is %s", node)
	}
}

func TestAttach_toSeveralIsTheSameDevice(t *testing.T) {
	d := start(t)
	must(t, d.Attach(to(instanceA, volumeA)))
	must(t, d.Attach(to(instanceB, volumeA)))
	if numberOf(t, d.path(instanceA, "dev/nvme0n1")) != numberOf(t, d.path(instanceB, "dev/nvme0n1")) {
		t.Error("two devices")
	}
	must(t, d.Detach(instanceA, volumeA, false))
	wantData(t, d.path(instanceB, "dev/nvme0n1"), "\x00", 0)
	must(t, d.RemoveInstance(instanceB))
	absent(t, d.path(instanceB))
}

func TestDetach_ofADeviceInUseIsBusyUnlessForced(t *testing.T) {
	d := start(t)
	must(t, d.Attach(to(instanceA, volumeA)))
	node := d.path(instanceA, "dev/nvme0n1")
	// A mount opens its device in this way.
	holder, err := os.OpenFile(node, os.O_RDWR|unix.O_EXCL, 0)
	must(t, err)
	if err := d.Detach(instanceA, volumeA, false); !errors.Is(err, world.ErrDeviceBusy) {
		t.Errorf("in use: %v", err)
	}
	wantData(t, node, "\x00", 0)
	must(t, d.Detach(instanceA, volumeA, true))
	absent(t, node)
	if len(d.intents) != 1 {
		t.Errorf("recorded %v", d.intents)
	}

	// Attached again before the guest released it, the device stays the same.
	must(t, d.Attach(to(instanceB, volumeA)))
	var was unix.Stat_t
	must(t, unix.Fstat(int(holder.Fd()), &was))
	if numberOf(t, d.path(instanceB, "dev/nvme0n1")) != was.Rdev {
		t.Error("another device for the same data")
	}
	must(t, holder.Close())
	must(t, d.Detach(instanceB, volumeA, false))
	if len(d.intents) != 0 {
		t.Errorf("recorded %v", d.intents)
	}
}

func TestGrowVolume_showsEverywhere(t *testing.T) {
	d := start(t)
	must(t, d.Attach(to(instanceA, volumeA)))
	must(t, d.Attach(to(instanceB, volumeA)))
	must(t, d.GrowVolume(volumeA, 3))
	for _, instance := range []string{instanceA, instanceB} {
		if size := read(t, d.path(instance, "sys/block/nvme0n1/size")); size != "6291456" {
			t.Errorf("size %q", size)
		}
	}
	write(t, d.path(instanceA, "dev/nvme0n1"), "end", 3*gibibyte-512)
	must(t, d.GrowVolume(volumeB, 2))
}

func TestCreateSnapshot_keepsTheDataOfItsMoment(t *testing.T) {
	d := start(t)
	must(t, d.Attach(to(instanceA, volumeA)))
	node := d.path(instanceA, "dev/nvme0n1")
	write(t, node, "before", 1<<20)
	must(t, d.CreateSnapshot(snapshotA, volumeA))
	write(t, node, "after.", 1<<20)
	must(t, d.CopySnapshot("snap-0123456789abcdef1", snapshotA))
	must(t, d.DeleteSnapshot(snapshotA))
	must(t, d.CreateVolume("vol-0123456789abcdef2", 2, world.DataSource{SnapshotID: "snap-0123456789abcdef1"}))
	must(t, d.CreateVolume("vol-0123456789abcdef3", 1, world.DataSource{VolumeID: volumeA}))
	wantData(t, filepath.Join(d.dir, volumeFile("vol-0123456789abcdef2")), "before", 1<<20)
	wantData(t, filepath.Join(d.dir, volumeFile("vol-0123456789abcdef3")), "after.", 1<<20)
	info, err := os.Stat(filepath.Join(d.dir, volumeFile("vol-0123456789abcdef2")))
	must(t, err)
	if info.Size() != 2*gibibyte {
		t.Errorf("%d bytes", info.Size())
	}
}

// A process that is killed only closes its descriptors.
func (d *Disks) die(t *testing.T) {
	t.Helper()
	for _, loop := range d.loops {
		must(t, loop.Close())
	}
	must(t, d.root.Close())
}

func TestOpen_afterAKillFindsNothingLeft(t *testing.T) {
	dir := nodetest.Dir(t)
	d := open(t, dir)
	must(t, d.CreateVolume(volumeA, 1, world.DataSource{}))
	must(t, d.Attach(to(instanceA, volumeA)))
	write(t, d.path(instanceA, "dev/nvme0n1"), "kept", 0)
	d.die(t)
	d = open(t, dir)
	absent(t, d.path(instanceA))
	if len(d.intents) != 0 {
		t.Errorf("recorded %v", d.intents)
	}
	must(t, d.Attach(to(instanceA, volumeA)))
	wantData(t, d.path(instanceA, "dev/nvme0n1"), "kept", 0)
	must(t, d.Close())
}

func TestOpen_afterAKillKeepsADeviceThatIsInUse(t *testing.T) {
	dir := nodetest.Dir(t)
	d := open(t, dir)
	must(t, d.CreateVolume(volumeA, 1, world.DataSource{}))
	must(t, d.Attach(to(instanceA, volumeA)))
	number := d.loops[volumeA].Number
	holder, err := os.OpenFile(d.path(instanceA, "dev/nvme0n1"), os.O_RDWR|unix.O_EXCL, 0)
	must(t, err)
	d.die(t)
	d = open(t, dir)
	must(t, d.Attach(to(instanceA, volumeA)))
	if numberOf(t, d.path(instanceA, "dev/nvme0n1")) != number {
		t.Error("another device for the same data")
	}
	if err := d.Detach(instanceA, volumeA, false); !errors.Is(err, world.ErrDeviceBusy) {
		t.Errorf("in use: %v", err)
	}
	must(t, holder.Close())
	must(t, d.Close())
}

func TestPrune_removesUnlistedVolumesAndSnapshots(t *testing.T) {
	d := start(t)
	must(t, d.CreateSnapshot(snapshotA, volumeA))
	other := filepath.Join(d.dir, volumesDir, "notes.txt")
	must(t, os.WriteFile(other, nil, 0o600))
	must(t, d.Prune([]string{volumeB}, nil))
	absent(t, filepath.Join(d.dir, volumeFile(volumeA)), filepath.Join(d.dir, snapshotFile(snapshotA)))
	for _, path := range []string{other, filepath.Join(d.dir, volumeFile(volumeB))} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestIDs_thatAreNoneReachNoPath(t *testing.T) {
	d := start(t)
	for name, err := range map[string]error{
		"create":   d.CreateVolume("../x", 1, world.DataSource{}),
		"source":   d.CreateVolume("vol-0123456789abcdef9", 1, world.DataSource{VolumeID: "../../x"}),
		"attach":   d.Attach(to("../x", volumeA)),
		"instance": d.RemoveInstance("../.."),
		"delete":   d.DeleteVolume("../devices"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
