package ebs

import (
	"maps"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Volumes of PersistentVolumes are not counted, nor is the root volume.
func TestNodeLabels_countsInterfacesAndOtherVolumes(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		instance, _ := s.launched() // with one volume next to the root volume
		s.must(s.emu.World().SetInterfaces(instance, 3))
		claimed := s.volume(p, "pvc-1")
		_, err := p.Attach(s.Context(), claimed, instance, forOneNode)
		s.must(err)
		labels := func(id string) map[string]string {
			got, err := p.controller.NodeLabels(s.Context(), id, func(volume string) bool { return volume == claimed })
			s.must(err)
			return got
		}
		want := map[string]string{"ebs.csi.aws.com/enis-count": "3", "ebs.csi.aws.com/non-csi-ebs-volumes-count": "1"}
		if got := labels("aws:///" + testZone + "/" + instance); !maps.Equal(got, want) {
			s.Errorf("the labels are %v; want %v", got, want)
		}
		for _, id := range []string{"", "gce://project/zone/node", "aws:///" + testZone + "/fargate-ip-10-0-0-1", "eks-hybrid:///eu-west-1/c/mi-1"} {
			if got := labels(id); got != nil {
				s.Errorf("%s has the labels %v", id, got)
			}
		}
		_, err = p.controller.NodeLabels(s.Context(), "aws:///"+testZone+"/i-0123456789abcdef0", func(string) bool { return false })
		s.want(err, backend.ErrNotFound, "an instance that does not exist")
		_, err = s.emu.World().DetachVolume(&world.DetachVolumeRequest{VolumeID: claimed})
		s.must(err)
	})
}
