package ebs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func (s *stage) machine() string {
	s.Helper()
	id, err := s.emu.World().RunInstance(world.InstanceSpec{Type: "m5.large", Zone: testZone})
	s.must(err)
	time.Sleep(time.Minute)
	return id
}

func (s *stage) plug(volume, instance, device string) {
	s.Helper()
	_, err := s.emu.World().AttachVolume(&world.AttachVolumeRequest{VolumeID: volume, InstanceID: instance, Device: device})
	s.must(err)
	time.Sleep(30 * time.Second)
}

// Volumes are listed with the nodes that have them, from one describe.
func TestVolumes_areListedWithTheirNodes(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p, node := s.start(Options{}), s.machine()
		var want []string
		for _, name := range []string{"a", "b", "c"} {
			want = append(want, s.create(p, creation(name)).ID)
		}
		slices.Sort(want)
		s.plug(want[1], node, "/dev/xvdaa")
		s.emu.Reset()
		listed, _, err := p.Volumes(s.Context(), "", 0)
		s.must(err)
		var got []string
		for _, v := range listed {
			got = append(got, v.ID)
			if attached := slices.Equal(v.PublishedNodes, []string{node}); attached != (v.ID == want[1]) {
				s.Errorf("%s is published at %v", v.ID, v.PublishedNodes)
			}
		}
		if !slices.Equal(got, want) || s.calls("") != 1 {
			s.Errorf("listed %v with %d calls; want %v with one", got, s.calls(""), want)
		}
	})
}

// A PersistentVolume may name a volume without the driver's tag. It is listed with its node
// while it is attached, because an orchestrator would otherwise publish it again.
func TestVolumes_listsWhatLacksTheTagOnceItIsAttached(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p, node := s.start(Options{}), s.machine()
		made, err := s.emu.World().CreateVolume(&world.CreateVolumeRequest{AvailabilityZone: testZone, VolumeType: "gp3", Size: pointer(int32(8))})
		s.must(err)
		tagged := s.create(p, creation("pvc-1"))
		wantListed := func(p process, want ...string) {
			s.Helper()
			listed, _, err := p.Volumes(s.Context(), "", 0)
			s.must(err)
			var at []string
			for _, v := range listed {
				if slices.Equal(v.PublishedNodes, []string{node}) {
					at = append(at, v.ID)
				}
			}
			slices.Sort(want)
			if !slices.Equal(at, want) {
				s.Errorf("listed at the node: %v; want %v", at, want)
			}
		}
		for _, id := range []string{made.VolumeID, tagged.ID} {
			_, err = p.Attach(s.Context(), id, node, forOneNode)
			s.must(err)
		}
		wantListed(p, made.VolumeID, tagged.ID)
		wantListed(p, made.VolumeID, tagged.ID)
		p = s.start(Options{})
		_, err = p.Attach(s.Context(), made.VolumeID, node, forOneNode)
		s.must(err)
		wantListed(p, made.VolumeID, tagged.ID)
		s.must(p.Detach(s.Context(), made.VolumeID, node))
		wantListed(p, tagged.ID)
		if listed, _, err := p.Volumes(s.Context(), "", 0); err != nil || len(listed) != 1 {
			s.Errorf("%d volumes are listed (%v); want the driver's own alone", len(listed), err)
		}
	})
}

// A volume in use is not deleted, and the error names its instance. For a volume that is
// being detached, the deletion waits.
func TestDeleteVolume_namesTheInstance(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p, node := s.start(Options{}), s.machine()
		v := s.create(p, creation("pvc-1"))
		s.plug(v.ID, node, "/dev/xvdaa")
		err := p.DeleteVolume(s.Context(), v.ID)
		s.want(err, backend.ErrInUse, "an attached volume")
		if err == nil || !strings.Contains(err.Error(), node) {
			s.Errorf("%v does not name %s", err, node)
		}
		s.wantVolumes(1 + 1) // the instance's own
		_, err = s.emu.World().DetachVolume(&world.DetachVolumeRequest{VolumeID: v.ID})
		s.must(err)
		s.must(p.DeleteVolume(s.Context(), v.ID))
		_, err = p.Volume(s.Context(), v.ID)
		s.want(err, backend.ErrNotFound, "after deletion")
		s.wantVolumes(1)
	})
}

// The driver does not ask EC2 for an ID that EC2 cannot have issued.
func TestVolume_foreignIDs(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		for _, id := range []string{"", "vol-", "vol-xyz", "vol-0123456789ABCDEF0", "vol-0123456789abcdef01", "local-ebs://dev/xvdbz", "a\x00b"} {
			_, err := p.Volume(s.Context(), id)
			s.want(err, backend.ErrNotFound, id)
			s.must(p.DeleteVolume(s.Context(), id))
			_, err = p.VolumeHealth(s.Context(), id)
			s.want(err, backend.ErrNotFound, id)
		}
		if s.calls("") != 0 {
			s.Errorf("%d calls; want none", s.calls(""))
		}
	})
}

// Clones keep to the source's zone; a volume whose source has gone is found.
func TestCreateVolume_clone(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		encrypted := creation("source")
		encrypted.Parameters = map[string]string{"encrypted": "true"}
		source := s.create(p, encrypted)
		clone := creation("clone")
		clone.Source.VolumeID, clone.Range = source.ID, backend.SizeRange{}
		got := s.create(p, clone)
		if got.Source.VolumeID != source.ID || got.Size != source.Size || got.ID == source.ID {
			s.Errorf("got %+v", got)
		}
		if again := s.create(p, clone); again.ID != got.ID {
			s.Errorf("the repeat gave %s; want %s", again.ID, got.ID)
		}
		away := creation("away")
		away.Source.VolumeID = source.ID
		away.Topology.Requisite = []backend.Topology{{zoneKey: "us-west-2b"}}
		_, err := p.CreateVolume(s.Context(), away)
		s.want(err, backend.ErrNoSpace, "another zone than the source's")
		open := creation("open")
		open.Source.VolumeID, open.Parameters = source.ID, map[string]string{"encrypted": "false"}
		_, err = p.CreateVolume(s.Context(), open)
		s.want(err, backend.ErrInvalid, "a copy that is not encrypted")
		taken := creation("source")
		taken.Source.VolumeID = source.ID
		_, err = p.CreateVolume(s.Context(), taken)
		s.want(err, backend.ErrExists, "the name of a volume that is not a copy")
		s.wantVolumes(2)
		s.must(p.DeleteVolume(s.Context(), source.ID))
		if again := s.create(p, clone); again.ID != got.ID {
			s.Errorf("after the source went: %s; want %s", again.ID, got.ID)
		}
		s.wantVolumes(1)
	})
}

// A zone may be named by its ID, and by the older key; the volume's topology has the
// zone's name.
func TestCreateVolume_zones(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		zones, err := p.controller.cloud.Zones(s.Context())
		s.must(err)
		id := zones[slices.IndexFunc(zones, func(z cloud.Zone) bool { return z.Name == "us-west-2b" })].ID
		topology := func(requisite, preferred []backend.Topology) *backend.TopologyRequirement {
			return &backend.TopologyRequirement{Requisite: requisite, Preferred: preferred}
		}
		both := []backend.Topology{{zoneKey: "us-west-2a"}, {zoneKey: "us-west-2b"}}
		for name, c := range map[string]struct {
			give *backend.TopologyRequirement
			want string
		}{
			"nothing":      {nil, "us-west-2a"},
			"no zone":      {topology([]backend.Topology{{"kubernetes.io/os": "linux"}}, nil), "us-west-2a"},
			"zone ID":      {topology([]backend.Topology{{zoneIDKey: id}}, nil), "us-west-2b"},
			"both names":   {topology([]backend.Topology{{zoneIDKey: id, zoneKey: "us-west-2b"}}, nil), "us-west-2b"},
			"older key":    {topology([]backend.Topology{{zoneKeyOwn: "us-west-2b"}}, nil), "us-west-2b"},
			"preferred":    {topology(both, []backend.Topology{{zoneKey: "us-west-2b"}, {zoneKey: "us-west-2a"}}), "us-west-2b"},
			"no preferred": {topology(both, nil), "us-west-2a"},
			"of a node":    {topology([]backend.Topology{{zoneKey: "us-west-2b", zoneKeyOwn: "us-west-2b", "kubernetes.io/os": "linux"}}, nil), "us-west-2b"},
		} {
			r := creation("pvc " + name)
			r.Topology = c.give
			for range 2 {
				v, err := p.CreateVolume(s.Context(), r)
				if err != nil || !cmp.Equal(v.Topology, []backend.Topology{{zoneKey: c.want}}) {
					s.Errorf("%s: %v, %v; want %s", name, v.Topology, err, c.want)
				}
			}
		}
		r := creation("contradiction")
		r.Topology = topology([]backend.Topology{{zoneIDKey: id, zoneKey: "us-west-2a"}}, nil)
		_, err = p.CreateVolume(s.Context(), r)
		s.want(err, backend.ErrInvalid, "zone and ID of two zones")
	})
}

// A volume of the AWS EBS CSI driver has its name, and is compared by its attributes.
func TestCreateVolume_adoptsTheReferenceDriversVolume(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		theirs, err := s.emu.World().CreateVolume(&world.CreateVolumeRequest{
			AvailabilityZone: testZone, ClientToken: token("pvc-1", 1), Size: pointer(int32(8)), VolumeType: "gp3", IOPS: pointer(int32(4000)), Encrypted: pointer(true),
			TagSpecifications: []world.TagSpecification{{ResourceType: "volume", Tags: []world.Tag{{Key: tags.VolumeName, Value: "pvc-1"}, {Key: tags.Managed, Value: "true"}}}},
		})
		s.must(err)
		time.Sleep(time.Minute)
		same := creation("pvc-1")
		same.Parameters = map[string]string{"iops": "4000", "encrypted": "true", "blockSize": "4096", "fstype": "ext4"}
		got := s.create(p, same)
		if got.ID != theirs.VolumeID || got.Context["blocksize"] != "4096" {
			s.Errorf("got %+v; want %s with its context", got, theirs.VolumeID)
		}
		for why, parameters := range map[string]map[string]string{"type": {"type": "gp2"}, "iops": {"iops": "3500"}, "throughput": {"iops": "4000", "throughput": "250"}} {
			other := creation("pvc-1")
			other.Parameters = parameters
			_, err := p.CreateVolume(s.Context(), other)
			s.want(err, backend.ErrExists, why)
			if err == nil || !strings.Contains(err.Error(), why) {
				s.Errorf("%v does not name %s", err, why)
			}
		}
		s.wantVolumes(1)
	})
}

// A volume that was modified still matches the request that made it, and is returned
// with its context.
func TestMatches_aVolumeThatWasChanged(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		r := creation("pvc-1")
		r.Parameters = map[string]string{"blockSize": "4096", "BlockAttachUntilInitialized": "true", "iopsPerGB": "10", "type": "io2", "allowAutoIOPSPerGBIncrease": "true"}
		v := s.create(p, r)
		_, err := s.emu.World().ModifyVolume(&world.ModifyVolumeRequest{VolumeID: v.ID, Size: pointer(int32(30)), VolumeType: "gp3"})
		s.must(err)
		time.Sleep(time.Minute)
		if again := s.create(p, r); again.ID != v.ID || again.Size != 30*gib {
			s.Errorf("the repeat gave %+v", again)
		}
		found, err := p.Volume(s.Context(), v.ID)
		s.must(err)
		if diff := cmp.Diff(map[string]string{"blocksize": "4096", "blockattachuntilinitialized": "true"}, found.Context); diff != "" {
			s.Error(diff)
		}
		have := found.Detail.(cloud.Volume).Tags
		if have[tags.IOPSPerGB] != "10" {
			s.Errorf("tags %v", have)
		}
	})
}

// Several nodes may read a filesystem, or write a block device, of io2.
func TestCreateVolume_multiAttach(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		for name, use := range map[string]backend.Capability{
			"readers": {Mode: backend.MultiNodeReaderOnly}, "writers": {Mode: backend.MultiNodeMultiWriter, Block: true}, "one": {Mode: backend.SingleNodeSingleWriter},
		} {
			r := creation(name)
			r.Parameters = map[string]string{"type": "io2", "iops": "100"}
			r.Capabilities = []backend.Capability{use}
			v := s.create(p, r)
			if shared := v.Detail.(cloud.Volume).MultiAttach; shared != (name != "one") {
				s.Errorf("%s: multi-attach is %v", name, shared)
			}
		}
	})
}

// Health comes from EC2's checks and from attachments.
func TestVolumeHealth_reportsWhatEC2Reports(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		problems, err := p.VolumeHealth(s.Context(), v.ID)
		if err != nil || len(problems) != 0 {
			s.Errorf("a well volume: %v, %v", problems, err)
		}
		s.must(s.emu.World().Impair(v.ID, true))
		problems, err = p.VolumeHealth(s.Context(), v.ID)
		if err != nil || len(problems) != 1 || problems[0].Kind != backend.HealthInaccessible {
			s.Errorf("an impaired volume: %v, %v", problems, err)
		}
		_, err = p.VolumeHealth(s.Context(), "vol-0123456789abcdef0")
		s.want(err, backend.ErrNotFound, "an absent volume")
	})
	now := time.Now()
	for state, want := range map[string]string{cloud.Busy: "DetachBusy", cloud.Attaching: "AttachStuck", cloud.Attached: ""} {
		found := attachmentProblems(cloud.Volume{Attachments: []cloud.Attachment{{InstanceID: "i-1", State: state, Since: now.Add(-time.Hour)}}}, now)
		if (want == "") != (len(found) == 0) || want != "" && found[0].Reason != want {
			t.Errorf("%s: %v; want %s", state, found, want)
		}
	}
	degraded := statusProblems(cloud.Status{State: "warning", Details: map[string]string{"io-performance": "stalled"}, Events: []string{"hardware"}})
	if len(degraded) != 1 || !strings.Contains(degraded[0].Message, "stalled") || !strings.Contains(degraded[0].Message, "hardware") {
		t.Errorf("got %v", degraded)
	}
}

// Probe costs no call and no time; credentials that are refused show.
func TestProbe_makesNoCall(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		for range 100 {
			s.must(p.Probe(s.Context()))
		}
		if s.calls("") != 0 {
			s.Errorf("%d calls", s.calls(""))
		}
	})
}

func pointer[T any](v T) *T { return &v }
