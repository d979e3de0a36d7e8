package ebs

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const nodeLocalSDF = "local-ebs://dev/sdf"

var forManyNodes = backend.AttachSpec{Capability: backend.Capability{Mode: backend.MultiNodeMultiWriter}}

// launched starts an instance that brings a volume under /dev/sdf, and returns both IDs.
func (s *stage) launched() (instance, volume string) {
	s.Helper()
	instance, err := s.emu.World().RunInstance(world.InstanceSpec{Type: "m5.large", Zone: testZone,
		Devices: []world.BootDevice{{Name: "/dev/sdf", Size: 10}}})
	s.must(err)
	time.Sleep(time.Minute)
	answer, err := s.emu.World().DescribeInstances(&world.DescribeInstancesRequest{InstanceIDs: []string{instance}})
	s.must(err)
	for _, d := range answer.Reservations[0].Instances[0].BlockDevices {
		if d.DeviceName == "/dev/sdf" {
			return instance, d.EBS.VolumeID
		}
	}
	s.Fatal("the instance lacks its volume")
	return "", ""
}

// published are the instances of a volume in the listing.
func (s *stage) published(p process, id string) []string {
	s.Helper()
	volumes, _, err := p.Volumes(s.Context(), "", 0)
	s.must(err)
	at := slices.IndexFunc(volumes, func(v backend.Volume) bool { return v.ID == id })
	if at < 0 {
		return nil
	}
	return volumes[at].PublishedNodes
}

// One handle is another volume on each instance. Nothing is attached or detached.
func TestNodeLocal_isTheVolumeOfEachInstance(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{NodeLocal: true})
		first, one := s.launched()
		second, two := s.launched()
		s.emu.Reset()
		for range 2 { // also for the repeated call
			for instance, volume := range map[string]string{first: one, second: two} {
				published, err := p.Attach(s.Context(), nodeLocalSDF, instance, forManyNodes)
				if want := map[string]string{"devicePath": "/dev/sdf", "volumeID": volume}; err != nil || !maps.Equal(published, want) {
					s.Errorf("published %v (%v); want %v", published, err, want)
				}
			}
		}
		both := []string{first, second}
		slices.Sort(both)
		if listed := s.published(p, nodeLocalSDF); !slices.Equal(listed, both) {
			s.Errorf("listed at %v; want %v", listed, both)
		}
		s.must(p.Detach(s.Context(), nodeLocalSDF, first))
		if listed := s.published(p, nodeLocalSDF); !slices.Equal(listed, []string{second}) {
			s.Errorf("listed at %v; want %s", listed, second)
		}
		s.must(p.Detach(s.Context(), nodeLocalSDF, ""))
		s.must(p.Detach(s.Context(), nodeLocalSDF, second))
		s.must(p.DeleteVolume(s.Context(), nodeLocalSDF))
		if listed := s.published(p, nodeLocalSDF); listed != nil || len(s.attachedTo(one)) != 1 || len(s.attachedTo(two)) != 1 {
			s.Errorf("listed at %v, %s attached to %v, %s to %v", listed, one, s.attachedTo(one), two, s.attachedTo(two))
		}
		if n := s.calls("AttachVolume") + s.calls("DetachVolume") + s.calls("DeleteVolume"); n > 0 {
			s.Errorf("%d calls that change something", n)
		}
	})
}

func TestNodeLocal_refusals(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{NodeLocal: true})
		instance, _ := s.launched()
		claimed := s.volume(p, "pvc-1")
		of, err := p.Attach(s.Context(), claimed, instance, forOneNode)
		s.must(err)
		inTree, err := s.emu.World().CreateVolume(&world.CreateVolumeRequest{AvailabilityZone: testZone, Size: new(int32(1)),
			TagSpecifications: []world.TagSpecification{{ResourceType: "volume",
				Tags: []world.Tag{{Key: "kubernetes.io/created-for/pv/name", Value: "pvc-2"}}}}})
		s.must(err)
		time.Sleep(time.Minute)
		_, err = s.emu.World().AttachVolume(&world.AttachVolumeRequest{VolumeID: inTree.VolumeID, InstanceID: instance, Device: "/dev/sdk"})
		s.must(err)
		time.Sleep(time.Minute)
		for _, c := range []struct {
			handle, instance string
			want             error
		}{
			{"local-ebs://dev/xvda", instance, backend.ErrPrecondition},           // the root device
			{"local-ebs:/" + of["devicePath"], instance, backend.ErrPrecondition}, // a claim's volume
			{"local-ebs://dev/sdk", instance, backend.ErrPrecondition},            // one of the in-tree plugin
			{"local-ebs://dev/sdg", instance, backend.ErrNotFound},
			{nodeLocalSDF, "i-0123456789abcdef0", backend.ErrNotFound},
			{"local-ebs://dev/../sdf", instance, backend.ErrInvalid},
			{"local-ebs://", instance, backend.ErrInvalid},
		} {
			_, err := p.Attach(s.Context(), c.handle, c.instance, forManyNodes)
			s.want(err, c.want, c.handle)
		}
		s.want(s.expand(p, nodeLocalSDF, 20), backend.ErrNotFound, "an expansion")
		off := s.start(Options{})
		_, err = off.Attach(s.Context(), nodeLocalSDF, instance, forManyNodes)
		s.want(err, backend.ErrPrecondition, "without the flag")
	})
}
