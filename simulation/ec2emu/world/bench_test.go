package world

import (
	"fmt"
	"testing"
)

// large is a world with 5,000 volumes attached to 250 instances.
func large(b *testing.B) (w *World, volumes, instances []string) {
	b.Helper()
	w, err := New(Config{Knobs: Instant()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	for n := range 5000 {
		if n%20 == 0 {
			id, err := w.RunInstance(InstanceSpec{})
			if err != nil {
				b.Fatal(err)
			}
			instances = append(instances, id)
		}
		name := fmt.Sprint("pvc-", n)
		v, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, Size: ptr(int32(1)), ClientToken: name,
			TagSpecifications: []TagSpecification{{"volume", []Tag{{"CSIVolumeName", name}}}}})
		if err != nil {
			b.Fatal(err)
		}
		volumes = append(volumes, v.VolumeID)
		if _, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: v.VolumeID, InstanceID: instances[n/20], Device: fmt.Sprintf("/dev/xvdb%c", 'a'+n%20)}); err != nil {
			b.Fatal(err)
		}
	}
	return w, volumes, instances
}

func BenchmarkDescribeVolumes(b *testing.B) {
	w, volumes, instances := large(b)
	for name, filter := range map[string]Filter{
		"200 by ID":  {"volume-id", volumes[1000:1200]},
		"200 by tag": {"tag:CSIVolumeName", volumes[1000:1200]},
		"instance":   {"attachment.instance-id", instances[:1]},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := w.DescribeVolumes(&DescribeVolumesRequest{Filters: []Filter{filter}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("instances", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.DescribeInstances(&DescribeInstancesRequest{Filters: []Filter{{"instance-id", instances[:200]}}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLife(b *testing.B) {
	w, _, _ := large(b)
	instance, err := w.RunInstance(InstanceSpec{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		v, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, Size: ptr(int32(1))})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: v.VolumeID, InstanceID: instance, Device: "/dev/sdf"}); err != nil {
			b.Fatal(err)
		}
		if _, err := w.DetachVolume(&DetachVolumeRequest{VolumeID: v.VolumeID}); err != nil {
			b.Fatal(err)
		}
		if _, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: v.VolumeID}); err != nil {
			b.Fatal(err)
		}
	}
}
