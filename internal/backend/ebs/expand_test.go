package ebs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func (s *stage) expand(p process, id string, size int64) error {
	_, err := p.Expand(s.Context(), id, backend.SizeRange{Required: size * gib})
	return err
}

// is is a volume as EC2 has it.
func (s *stage) is(id string) world.Volume {
	s.Helper()
	answer, err := s.emu.World().DescribeVolumes(&world.DescribeVolumesRequest{VolumeIDs: []string{id}})
	s.must(err)
	return answer.Volumes[0]
}

// An expansion takes the window and EC2's time; one to the present size takes one
// describe.
func TestExpand_lifeOfAnExpansion(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id := s.volume(p, "pvc-1")
		s.emu.Reset()
		began := time.Now()
		s.must(s.expand(p, id, 20))
		if took := time.Since(began); took > 4300*time.Millisecond || s.calls("ModifyVolume") != 1 || s.describes("ModifyVolume") > 4 {
			s.Errorf("took %s, %d ModifyVolume, %d describes", took, s.calls("ModifyVolume"), s.describes("ModifyVolume"))
		}
		s.emu.Reset()
		began = time.Now()
		s.must(s.expand(p, id, 20))
		if took := time.Since(began); took > 80*time.Millisecond || s.calls("") != 1 {
			s.Errorf("the repeat took %s and %d calls", took, s.calls(""))
		}
		if v := s.is(id); v.Size != 20 {
			s.Errorf("%d GiB", v.Size)
		}
	})
}

// Both RPCs within the window, in either order, through the
// guard: one ModifyVolume with everything.
func TestModify_togetherWithExpand(t *testing.T) {
	for _, expandFirst := range []bool{true, false} {
		staged(t, usual(), func(s *stage) {
			p := s.start(Options{})
			id := s.volume(p, "pvc-1")
			s.emu.Reset()
			calls := []func() error{
				func() error { return s.expand(p, id, 100) },
				func() error {
					return p.Modify(s.Context(), id, map[string]string{
						"iopspergb": "50", "allowautoiopsincreaseonmodify": "true", "throughput": "250", "tagSpecification_1": "team={{ .PVCName }}",
					}, map[string]string{"csi.storage.k8s.io/pvc/name": "data"})
				},
			}
			if !expandFirst {
				calls[0], calls[1] = calls[1], calls[0]
			}
			first := make(chan error, 1)
			go func() { first <- calls[0]() }()
			time.Sleep(1500 * time.Millisecond)
			s.must(errors.Join(calls[1](), <-first))
			if n := s.calls("ModifyVolume"); n != 1 {
				s.Errorf("%d ModifyVolume", n)
			}
			v := s.is(id)
			tagged := map[string]string{}
			for _, tag := range v.Tags {
				tagged[tag.Key] = tag.Value
			}
			if v.Size != 100 || *v.IOPS != 5000 || *v.Throughput != 250 || tagged["team"] != "data" || tagged["ebs.csi.aws.com/IOPSPerGb"] != "50" {
				s.Errorf("%+v", v)
			}
		})
	}
}

// The ratio is kept when the volume grows later (allowAutoIOPSIncreaseOnModify).
func TestExpand_keepsTheRatio(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		s.change(func(k *world.Knobs) { k.Cooldown = world.CooldownOff; k.Times.Optimize = world.Fixed(time.Second) })
		id := s.volume(p, "pvc-1")
		s.must(p.Modify(s.Context(), id, map[string]string{"iopsPerGB": "400", "allowAutoIOPSIncreaseOnModify": "true"}, nil))
		time.Sleep(time.Minute)
		s.must(s.expand(p, id, 20))
		if v := s.is(id); *v.IOPS != 8000 {
			s.Errorf("%d IOPS, want 8000", *v.IOPS)
		}
	})
}

// An impossible change is refused with its code, and no call is sent.
func TestModify_refusals(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id := s.volume(p, "pvc-1")
		s.emu.Reset()
		s.want(s.expand(p, id, 70000), backend.ErrOutOfRange, "too large")
		s.want(p.Modify(s.Context(), id, map[string]string{"iops": "7000", "tagSpecification_1": "a=b"}, nil), backend.ErrOutOfRange, "iops for the size")
		s.want(p.Modify(s.Context(), id, map[string]string{"iops": "90000"}, nil), backend.ErrInvalid, "iops at all")
		s.want(p.Modify(s.Context(), id, map[string]string{"tagDeletion_1": "CSIVolumeName"}, nil), backend.ErrInvalid, "the driver's own tag")
		s.want(s.expand(p, "vol-0123456789abcdef0", 20), backend.ErrNotFound, "a missing volume")
		if n := s.calls("ModifyVolume") + s.calls("CreateTags") + s.calls("DeleteTags"); n > 0 {
			s.Errorf("%d calls that change something", n)
		}
	})
}

// A running and a resting modification have different errors, with the time of the end.
func TestExpand_runningAndResting(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		s.change(func(k *world.Knobs) {
			k.Cooldown = world.CooldownSixHours
			k.Times.Optimize = world.Fixed(time.Hour)
		})
		id := s.volume(p, "pvc-1")
		s.must(s.expand(p, id, 20))
		time.Sleep(30 * time.Minute)
		began := time.Now()
		err := s.expand(p, id, 30)
		s.want(err, backend.ErrBusy, "while optimizing")
		if err == nil || !strings.Contains(err.Error(), "optimizing") || time.Since(began) > 200*time.Millisecond {
			s.Errorf("%v after %s", err, time.Since(began))
		}
		time.Sleep(2 * time.Hour)
		err = s.expand(p, id, 30)
		s.want(err, backend.ErrNoSpace, "in the cooldown")
		if err == nil || !strings.Contains(err.Error(), "rule of six hours at") {
			s.Errorf("%v does not say when", err)
		}
		time.Sleep(4 * time.Hour)
		s.must(s.expand(p, id, 30))
	})
}

// The answer of ModifyVolume is lost: it is not sent twice.
func TestExpand_lostAnswer(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id := s.volume(p, "pvc-1")
		s.emu.Reset()
		s.fault(ec2emu.Fault{Action: "ModifyVolume", Kind: ec2emu.FaultDropReply, Count: 1})
		s.must(s.expand(p, id, 20))
		if n := s.calls("ModifyVolume"); n != 1 {
			s.Errorf("%d ModifyVolume", n)
		}
	})
}

// A modification that fails inside EC2 is tried again by the repeat.
func TestExpand_failedModification(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id := s.volume(p, "pvc-1")
		s.volumeFault(world.Fault{Kind: world.ModifyFails, VolumeID: id, Count: 1})
		s.want(s.expand(p, id, 20), backend.ErrUnavailable, "a failure inside EC2")
		s.must(s.expand(p, id, 20))
	})
}

// The budgets of 500 expansions by 100 workers.
func TestExpand_budgetsOf500(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		const n = 500
		p := s.start(Options{})
		ids := make([]string, n)
		s.workers(n, 100, func(i int) error {
			v, err := p.CreateVolume(s.Context(), creation(fmt.Sprint("pvc-", i)))
			ids[i] = v.ID
			return err
		})
		s.emu.Reset()
		took := s.workers(n, 100, func(i int) error { return s.expand(p, ids[i], 20) })
		s.Logf("expand: p50 %s, p99 %s, %d ModifyVolume, %d DescribeVolumes, %d DescribeVolumesModifications", took[n/2], took[n*99/100],
			s.calls("ModifyVolume"), s.calls("DescribeVolumes"), s.calls("DescribeVolumesModifications"))
		if took[n/2] > 4300*time.Millisecond {
			s.Errorf("p50 %s", took[n/2])
		}
		if calls, others := s.calls("ModifyVolume"), s.describes("ModifyVolume"); calls != n || others > 30 {
			s.Errorf("%d calls and %d describes, want %d and at most 30", calls, others, n)
		}
	})
}
