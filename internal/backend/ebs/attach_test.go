package ebs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

var forOneNode = backend.AttachSpec{Capability: backend.Capability{Mode: backend.SingleNodeWriter}}

// node starts an instance.
func (s *stage) node() string {
	s.Helper()
	id, err := s.emu.World().RunInstance(world.InstanceSpec{Type: "m5.large", Zone: testZone})
	s.must(err)
	time.Sleep(time.Minute)
	return id
}

// volume makes a volume.
func (s *stage) volume(p process, name string) string {
	s.Helper()
	v, err := p.CreateVolume(s.Context(), creation(name))
	s.must(err)
	return v.ID
}

// attachedTo are the instances that a volume is attached to, without the lag of
// describes.
func (s *stage) attachedTo(id string) []string {
	s.Helper()
	late := s.emu.World().Knobs().Consistency
	s.change(func(k *world.Knobs) { k.Consistency = world.Consistency{} })
	defer s.change(func(k *world.Knobs) { k.Consistency = late })
	answer, err := s.emu.World().DescribeVolumes(&world.DescribeVolumesRequest{VolumeIDs: []string{id}})
	s.must(err)
	var instances []string
	for _, a := range answer.Volumes[0].Attachments {
		instances = append(instances, a.InstanceID+" "+a.State)
	}
	return instances
}

// workers calls do n times, atOnce calls at a time, and returns how long each took.
func (s *stage) workers(n, atOnce int, do func(i int) error) []time.Duration {
	s.Helper()
	took := make([]time.Duration, n)
	failed := make([]error, n)
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				began := time.Now()
				failed[i] = do(i)
				took[i] = time.Since(began)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	s.must(errors.Join(failed...))
	slices.Sort(took)
	return took
}

// describes is the number of calls other than the mutations.
func (s *stage) describes(mutations ...string) int {
	n := s.calls("")
	for _, action := range mutations {
		n -= s.calls(action)
	}
	return n
}

// An attachment and a detachment, and repeated calls.
func TestAttach_lifeOfAnAttachment(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id, node := s.volume(p, "pvc-1"), s.node()
		s.emu.Reset()
		began := time.Now()
		published, err := p.Attach(s.Context(), id, node, forOneNode)
		s.must(err)
		if published["devicePath"] != "/dev/xvdaa" || time.Since(began) > 2250*time.Millisecond {
			s.Errorf("published %v in %s", published, time.Since(began))
		}
		s.emu.Reset()
		began = time.Now()
		again, err := p.Attach(s.Context(), id, node, forOneNode)
		s.must(err)
		if again["devicePath"] != published["devicePath"] || time.Since(began) > 80*time.Millisecond || s.calls("AttachVolume") != 0 {
			s.Errorf("published %v again in %s", again, time.Since(began))
		}
		time.Sleep(10 * time.Second)
		s.emu.Reset()
		began = time.Now()
		s.must(p.Detach(s.Context(), id, node))
		if took := time.Since(began); took > 2250*time.Millisecond || s.calls("DetachVolume") != 1 {
			s.Errorf("detached in %s with %d calls", took, s.calls("DetachVolume"))
		}
		s.must(p.Detach(s.Context(), id, node))
		if left := s.attachedTo(id); len(left) > 0 {
			s.Errorf("attached to %q", left)
		}
	})
}

// The budgets of 500 attachments by 100 workers: time, and calls in addition to the
// 500 necessary ones.
func TestAttach_budgetsOf500(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		const n = 500
		p := s.start(Options{})
		ids := make([]string, n)
		s.workers(n, 100, func(i int) error {
			v, err := p.CreateVolume(s.Context(), creation(fmt.Sprint("pvc-", i)))
			ids[i] = v.ID
			return err
		})
		nodes := make([]string, 25)
		for i := range nodes {
			nodes[i] = s.node()
		}
		for _, c := range []struct {
			what, action string
			do           func(i int) error
		}{
			{"attach", "AttachVolume", func(i int) error {
				_, err := p.Attach(s.Context(), ids[i], nodes[i%25], forOneNode)
				return err
			}},
			{"detach", "DetachVolume", func(i int) error { return p.Detach(s.Context(), ids[i], nodes[i%25]) }},
		} {
			time.Sleep(10 * time.Second)
			s.emu.Reset()
			took := s.workers(n, 100, c.do)
			s.Logf("%s: p50 %s, p99 %s, %d calls, %d describes", c.what, took[n/2], took[n*99/100], s.calls(c.action), s.describes(c.action))
			for _, a := range []string{"DescribeVolumes", "DescribeInstances", "DescribeInstanceTypes"} {
				s.Logf("%s %d", a, s.calls(a))
			}
			if took[n/2] > 2250*time.Millisecond {
				s.Errorf("%s: p50 %s", c.what, took[n/2])
			}
			if calls, others := s.calls(c.action), s.describes(c.action); calls != n || others > 15 {
				s.Errorf("%s: %d calls and %d describes, want %d and at most 15", c.what, calls, others, n)
			}
		}
	})
}

// With the real client: the deadline passes while EC2 attaches; another
// process answers the repeat at once; one AttachVolume in all.
func TestAttach_deadlineOverTheProtocol(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id, node := s.volume(p, "pvc-1"), s.node()
		s.change(func(k *world.Knobs) { k.Times.Attach = world.Fixed(20 * time.Second) })
		ctx, cancel := context.WithTimeout(s.Context(), 15*time.Second)
		defer cancel()
		if _, err := p.Attach(ctx, id, node, forOneNode); err == nil {
			s.Fatal("attached too early")
		}
		time.Sleep(10 * time.Second)
		calls := s.calls("AttachVolume")
		second := s.start(Options{})
		began := time.Now()
		_, err := second.Attach(s.Context(), id, node, forOneNode)
		s.must(err)
		if took := time.Since(began); took > 80*time.Millisecond || calls != 1 || s.calls("AttachVolume") != 0 {
			s.Errorf("took %s, %d and %d calls of AttachVolume", took, calls, s.calls("AttachVolume"))
		}
	})
}

// Calls supersede each other with the real client, and EC2 late with everything.
func TestDetach_supersedesAttachOfALateEC2(t *testing.T) {
	o := usual()
	staged(t, o, func(s *stage) {
		p := s.start(Options{})
		id, node := s.volume(p, "pvc-1"), s.node()
		s.change(func(k *world.Knobs) { k.Consistency.StaleOneIn, k.Consistency.StaleFor = 3, world.Span(2*time.Second) })
		for i := range 12 {
			ctx, cancel := context.WithCancel(s.Context())
			attached := make(chan error, 1)
			go func() { _, err := p.Attach(ctx, id, node, forOneNode); attached <- err }()
			synctest.Wait()
			time.Sleep(time.Duration(i) * 250 * time.Millisecond)
			s.must(p.Detach(s.Context(), id, node))
			if err := <-attached; err != nil && !errors.Is(err, backend.ErrBusy) {
				s.Errorf("the overruled call: %v", err)
			}
			cancel()
			if left := s.attachedTo(id); len(left) > 0 {
				s.Fatalf("attached to %q though Detach said OK", left)
			}
		}
	})
}

// Every answer of one AttachVolume and one DetachVolume is lost.
func TestAttach_lostAnswers(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id, node := s.volume(p, "pvc-1"), s.node()
		s.fault(ec2emu.Fault{Action: "AttachVolume", Kind: ec2emu.FaultDropReply, Count: 1})
		s.fault(ec2emu.Fault{Action: "DetachVolume", Kind: ec2emu.FaultDropReply, Count: 1})
		_, err := p.Attach(s.Context(), id, node, forOneNode)
		s.must(err)
		if got := s.attachedTo(id); len(got) != 1 {
			s.Errorf("attached to %q", got)
		}
		s.must(p.Detach(s.Context(), id, node))
		if got := s.attachedTo(id); len(got) != 0 {
			s.Errorf("attached to %q", got)
		}
	})
}

// A stopped instance, another zone, a missing instance: the error names the next action.
func TestAttach_refusals(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id, node := s.volume(p, "pvc-1"), s.node()
		_, err := p.Attach(s.Context(), id, "i-0123456789abcdef0", forOneNode)
		s.want(err, backend.ErrNotFound, "a missing instance")
		_, err = p.Attach(s.Context(), "vol-0123456789abcdef0", node, forOneNode)
		s.want(err, backend.ErrNotFound, "a missing volume")
		_, err = p.Attach(s.Context(), "vol-nonsense", node, forOneNode)
		s.want(err, backend.ErrNotFound, "no volume ID")
		elsewhere, err := s.emu.World().RunInstance(world.InstanceSpec{Zone: "us-west-2b"})
		s.must(err)
		_, err = p.Attach(s.Context(), id, elsewhere, forOneNode)
		s.want(err, backend.ErrPrecondition, "another zone")
		_, err = p.Attach(s.Context(), id, node, backend.AttachSpec{Capability: backend.Capability{Mode: backend.MultiNodeMultiWriter}})
		s.want(err, backend.ErrInvalid, "writers of one filesystem at several nodes")
	})
}

func TestSharedAttachment(t *testing.T) {
	for _, c := range []struct {
		mode            backend.AccessMode
		block, readOnly bool
		shared, refused bool
	}{
		{backend.SingleNodeWriter, false, false, false, false},
		{backend.SingleNodeMultiWriter, true, false, false, false},
		{backend.MultiNodeReaderOnly, false, false, true, false},
		{backend.MultiNodeMultiWriter, true, false, true, false},
		{backend.MultiNodeMultiWriter, false, true, true, false},
		{backend.MultiNodeMultiWriter, false, false, false, true},
		{backend.MultiNodeSingleWriter, false, false, false, true},
	} {
		shared, err := sharedAttachment(backend.Capability{Mode: c.mode, Block: c.block}, c.readOnly)
		if shared != c.shared || (err != nil) != c.refused {
			t.Errorf("%+v: shared %t, %v", c, shared, err)
		}
	}
}

// If the StorageClass requests it, a volume is attached when its data has been loaded from
// the snapshot.
func TestAttach_waitsUntilInitialized(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		node := s.node()
		snapshot, err := p.CreateSnapshot(s.Context(), backend.SnapshotSpec{Name: "snap-1", SourceID: s.volume(p, "pvc-1")})
		s.must(err)
		time.Sleep(time.Hour)
		request := creation("pvc-2")
		request.Source = backend.Source{SnapshotID: snapshot.ID}
		request.Parameters = map[string]string{"blockAttachUntilInitialized": "true", "volumeInitializationRate": "100"}
		v, err := p.CreateVolume(s.Context(), request)
		s.must(err)
		s.attachesInitialized(p, v.ID, node, forOneNode)
	})
}

// Volumes of the AWS EBS CSI driver have that request in their context, not in a tag.
func TestAttach_waitsIfOnlyTheContextAsksForIt(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		node := s.node()
		snapshot, err := p.CreateSnapshot(s.Context(), backend.SnapshotSpec{Name: "snap-1", SourceID: s.volume(p, "pvc-1")})
		s.must(err)
		time.Sleep(time.Hour)
		request := creation("pvc-2")
		request.Source = backend.Source{SnapshotID: snapshot.ID}
		request.Parameters = map[string]string{"volumeInitializationRate": "100"}
		v, err := p.CreateVolume(s.Context(), request)
		s.must(err)
		spec := forOneNode
		spec.Context = map[string]string{"blockattachuntilinitialized": "true"}
		s.attachesInitialized(p, v.ID, node, spec)
	})
}

// attachesInitialized attaches a volume that is still being filled.
func (s *stage) attachesInitialized(p process, id, node string, spec backend.AttachSpec) {
	s.Helper()
	began := time.Now()
	_, err := p.Attach(s.Context(), id, node, spec)
	s.must(err)
	status, err := p.controller.cloud.Status(s.Context(), id)
	s.must(err)
	s.Logf("waited %s", time.Since(began))
	if state := status.Details["initialization-state"]; state != "completed" {
		s.Errorf("attached while %q", state)
	}
}
