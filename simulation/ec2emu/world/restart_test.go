package world

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestRestart_bringsEverythingBack(t *testing.T) {
	dir := t.TempDir()
	devices := &recorder{}
	config := Config{Knobs: Instant(), StateDir: dir, Devices: devices, Seed: 1}
	w := start(t, config)
	instance := newInstance(t, w, InstanceSpec{Tags: map[string]string{"a": "b"}})
	attachedOne := newVolume(t, w)
	attach(t, w, attachedOne, instance, "/dev/sdf")
	waitAttachment(t, w, attachedOne, instance, attached)
	snapshot := snap(t, w, attachedOne)
	if err := w.SetKnobs(Bench()); err != nil {
		t.Fatal(err)
	}
	underWay, err := w.CreateVolume(request("t"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := w.DescribeVolumes(&DescribeVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Not closed: an answered call is durable without that.
	config.Knobs, config.Devices = Bench(), &recorder{}
	again := start(t, config)
	after, err := again.DescribeVolumes(&DescribeVolumesRequest{})
	if err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("volumes were\n%+v\nand are\n%+v, %v", before, after, err)
	}
	if s := describeSnapshot(t, again, snapshot); s == nil || s.State != completed {
		t.Errorf("snapshot %+v", s)
	}
	if !config.Devices.(*recorder).has("attach "+attachedOne) || !config.Devices.(*recorder).has("prune") {
		t.Error("the device did not come back")
	}
	if err := again.Advance(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	waitState(t, again, underWay.VolumeID, available)
	repeated, err := again.CreateVolume(request("t"))
	if err != nil || repeated.VolumeID != underWay.VolumeID {
		t.Errorf("the token is forgotten: %v, %v", repeated, err)
	}
	if fresh := newVolumeID(t, again); fresh == underWay.VolumeID || fresh == attachedOne {
		t.Error("an ID was given twice")
	}
}

func newVolumeID(t *testing.T, w *World) string {
	t.Helper()
	v, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, Size: ptr(int32(1))})
	if err != nil {
		t.Fatal(err)
	}
	return v.VolumeID
}

func TestNew_refusesADamagedState(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{StateDir: dir}); err == nil {
		t.Error("no error")
	}
}
