package ebs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
)

// Classes that were written for the AWS EBS CSI driver keep working: their values are
// brought within the limits, and the log names each change.
func TestLenient_classesOfTheReferenceDriver(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		var log bytes.Buffer
		p := s.start(Options{Reading: params.Lenient, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		old := creation("pvc-old")
		old.Parameters = map[string]string{"type": "io1", "iopsPerGB": "5000", "encrypted": "yes", "Type": "io1"}
		first := s.create(p, old)
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
		_, err := p.CreateVolume(s.Context(), other)
		s.want(err, backend.ErrExists, "another request under the name")

		time.Sleep(time.Minute)
		s.must(p.Modify(s.Context(), first.ID, map[string]string{"iops": "100000"}, nil))
		if v := s.is(first.ID); *v.IOPS != 400 || s.calls("ModifyVolume") != 0 {
			s.Errorf("%d IOPS after %d modifications; want 400, which is the most, without one", *v.IOPS, s.calls("ModifyVolume"))
		}
		s.must(p.Modify(s.Context(), first.ID, map[string]string{"type": "gp3", "iops": "100"}, nil))
		if v := s.is(first.ID); v.VolumeType != "gp3" || *v.IOPS != 3000 {
			s.Errorf("the volume is %s with %d IOPS; want gp3 with 3000, which is the least", v.VolumeType, *v.IOPS)
		}
	})
}
