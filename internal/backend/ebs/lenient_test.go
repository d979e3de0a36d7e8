package ebs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Classes that were written for the AWS EBS CSI driver keep working: their values are
// brought within the limits, and the log names each change.
func TestLenient_classesOfTheReferenceDriver(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		var log bytes.Buffer
		p := s.start(Options{Reading: params.Lenient, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		old := creation("pvc-old")
		old.Parameters = map[string]string{"type": "io1", "iopsPerGB": "5000", "encrypted": "yes", "Type": "io1"}
		collecting, warnings := backend.CollectWarnings(s.Context())
		first, err := p.CreateVolume(collecting, old)
		s.must(err)
		if got := warnings(); len(got) != 2 || !strings.Contains(strings.Join(got, ","), "40000 IOPS are read as 400") {
			s.Errorf("the caller's warnings are %q", got)
		}
		if v := s.is(first.ID); *v.IOPS != 8*50 || !v.Encrypted {
			s.Errorf("the volume has %d IOPS, encrypted %t; want 400 and true", *v.IOPS, v.Encrypted)
		}
		if again := s.create(p, old); again.ID != first.ID {
			s.Errorf("the repeat gave %s, want %s", again.ID, first.ID)
		}
		for _, want := range []string{"pvc-old", `encrypted \"yes\" is read as \"true\"`, "40000 IOPS are read as 400"} {
			if !strings.Contains(log.String(), want) {
				s.Errorf("the log lacks %q:\n%s", want, log.String())
			}
		}
		s.must(p.Validate(first, backend.VolumeSpec{Size: first.Size, Capabilities: old.Capabilities, Parameters: old.Parameters}))
		other := creation("pvc-old")
		other.Parameters = map[string]string{"type": "gp3"}
		_, err = p.CreateVolume(s.Context(), other)
		s.want(err, backend.ErrExists, "another request under the name")

		time.Sleep(time.Minute)
		s.must(p.Modify(s.Context(), first.ID, map[string]string{"iops": "100000"}, nil))
		if v := s.is(first.ID); *v.IOPS != 400 || s.calls("ModifyVolume") != 0 {
			s.Errorf("%d IOPS after %d modifications; want 400, which is the most, without one", *v.IOPS, s.calls("ModifyVolume"))
		}
		if !strings.Contains(log.String(), "100000 IOPS are read as 400") {
			s.Errorf("the log lacks the IOPS of the modification:\n%s", log.String())
		}
		s.must(p.Modify(s.Context(), first.ID, map[string]string{"type": "gp3", "iops": "100"}, nil))
		if v := s.is(first.ID); v.VolumeType != "gp3" || *v.IOPS != 3000 {
			s.Errorf("the volume is %s with %d IOPS; want gp3 with 3000, which is the least", v.VolumeType, *v.IOPS)
		}
	})
}

// AWS raises the limits of volume types from time to time. A class that names the IOPS of
// an existing volume does not lower them, and the volume can grow.
func TestLenient_keepsIOPSAboveTheKnownLimit(t *testing.T) {
	raised := usual()
	raised.World.Zones = []world.Zone{{Name: testZone, ID: "usw2-az1", Limits: map[string]world.TypeLimits{
		"io2": {MinSize: 4, MaxSize: 65536, MinIOPS: 100, MaxIOPS: 400000, IOPSPerGiB: 2000}}}}
	staged(t, raised, func(s *stage) {
		p := s.start(Options{Reading: params.Lenient})
		size, iops, kind := int32(200), int32(300000), "io2"
		made, err := s.emu.World().CreateVolume(&world.CreateVolumeRequest{
			AvailabilityZone: testZone, Size: &size, VolumeType: kind, IOPS: &iops})
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute)
		for _, class := range []map[string]string{
			{"iops": "300000"}, {"type": "io2", "iops": "300000"}, {"iopspergb": "1500"}, {"iops": "350000"},
		} {
			s.must(p.Modify(s.Context(), made.VolumeID, class, nil))
			if v := s.is(made.VolumeID); *v.IOPS != 300000 || s.calls("ModifyVolume") != 0 {
				s.Errorf("%v: %d IOPS after %d modifications; want those that the volume had", class, *v.IOPS, s.calls("ModifyVolume"))
			}
		}
		now, err := p.Volume(s.Context(), made.VolumeID)
		s.must(err)
		s.must(p.Validate(now, backend.VolumeSpec{Size: now.Size, Capabilities: creation("").Capabilities,
			Parameters: map[string]string{"type": "io2", "iops": "300000"}}))
		s.must(s.expand(p, made.VolumeID, 201))
		if v := s.is(made.VolumeID); v.Size != 201 || *v.IOPS != 300000 {
			s.Errorf("the volume has %d GiB and %d IOPS; want 201 and 300000", v.Size, *v.IOPS)
		}
	})
}
