package disk

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const zone = "us-west-2a"

// newWorld is one whose state and data are below a directory.
func newWorld(t *testing.T, dir string) (*world.World, *Disks) {
	t.Helper()
	d := open(t, dir)
	w, err := world.New(world.Config{Knobs: world.Instant(), StateDir: filepath.Join(dir, "state"), Devices: d})
	must(t, err)
	return w, d
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 6000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not in time: %s", what)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func runInstance(t *testing.T, w *world.World) string {
	t.Helper()
	id, err := w.RunInstance(world.InstanceSpec{})
	must(t, err)
	return id
}

func create(t *testing.T, w *world.World, snapshot string) string {
	t.Helper()
	r := &world.CreateVolumeRequest{AvailabilityZone: zone, VolumeType: "gp3", SnapshotID: snapshot}
	if snapshot == "" {
		size := int32(1)
		r.Size = &size
	}
	v, err := w.CreateVolume(r)
	must(t, err)
	return v.VolumeID
}

func attach(t *testing.T, w *world.World, volume, instance, name string) {
	t.Helper()
	_, err := w.AttachVolume(&world.AttachVolumeRequest{VolumeID: volume, InstanceID: instance, Device: name})
	must(t, err)
}

func TestWorld_withRealDevices(t *testing.T) {
	w, d := newWorld(t, nodetest.Dir(t))
	defer func() { must(t, w.Close()) }()
	instance, volume := runInstance(t, w), create(t, w, "")
	attach(t, w, volume, instance, "/dev/xvdba")
	root, node := d.path(instance, "dev/nvme0n1"), d.path(instance, "dev/nvme1n1")
	if !exists(root) || !exists(node) {
		t.Fatal("no devices")
	}
	write(t, node, "data", 0)
	s, err := w.CreateSnapshot(&world.CreateSnapshotRequest{VolumeID: volume})
	must(t, err)
	write(t, node, "more", 0)
	restored := create(t, w, s.SnapshotID)
	attach(t, w, restored, instance, "/dev/xvdbb")
	wantData(t, d.path(instance, "dev/nvme2n1"), "data", 0)

	size := int32(2)
	_, err = w.ModifyVolume(&world.ModifyVolumeRequest{VolumeID: volume, Size: &size})
	must(t, err)
	if got := read(t, d.path(instance, "sys/block/nvme1n1/size")); got != "4194304" {
		t.Errorf("size %s", got)
	}

	must(t, w.StopInstance(instance))
	absent(t, root, node)
	must(t, w.StartInstance(instance))
	wantData(t, node, "more", 0)
	must(t, w.TerminateInstance(instance))
	absent(t, d.path(instance))
	_, err = w.DeleteVolume(&world.DeleteVolumeRequest{VolumeID: volume})
	must(t, err)
	absent(t, filepath.Join(d.dir, volumeFile(volume)))
}

func TestWorld_afterAKillHasItsDevicesBack(t *testing.T) {
	dir := nodetest.Dir(t)
	w, d := newWorld(t, dir)
	instance, volume := runInstance(t, w), create(t, w, "")
	attach(t, w, volume, instance, "/dev/xvdba")
	write(t, d.path(instance, "dev/nvme1n1"), "kept", 0)
	must(t, d.CreateVolume("vol-0123456789abcdef9", 1, world.DataSource{})) // cut off before the world wrote it down
	d.die(t)

	w, d = newWorld(t, dir)
	eventually(t, "the device is back", func() bool { return exists(d.path(instance, "dev/nvme1n1")) })
	wantData(t, d.path(instance, "dev/nvme1n1"), "kept", 0)
	absent(t, filepath.Join(dir, volumeFile("vol-0123456789abcdef9")))
	_, err := w.DetachVolume(&world.DetachVolumeRequest{VolumeID: volume})
	must(t, err)
	must(t, w.Close())
	nodetest.NoLeaks(t, dir)
}
