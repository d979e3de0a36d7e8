package ebs

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const testZone = "us-west-2a"

// stage is EC2 and processes that use it, in virtual time.
type stage struct {
	*testing.T
	emu *ec2emu.Server
}

// process is one controller with the guard around it, as the driver has it.
type process struct {
	*guard.Guard
	controller *Controller
}

// staged runs a test in virtual time.
func staged(t *testing.T, o ec2emu.Options, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		emu, err := ec2emu.New(o)
		if err != nil {
			t.Fatal(err)
		}
		// Also when the test fails: what still runs would hide the failure.
		t.Cleanup(func() {
			if err := emu.Close(); err != nil {
				t.Error(err)
			}
		})
		test(&stage{T: t, emu: emu})
	})
}

// usual is EC2 with the times of the benchmarks.
func usual() ec2emu.Options {
	return ec2emu.Options{
		World: world.Config{Knobs: world.Bench()},
		Knobs: ec2emu.Knobs{Latency: map[string]world.Takes{"*": world.Fixed(50 * time.Millisecond)}},
	}
}

// start begins a process and lets its start-up check pass.
func (s *stage) start(o Options) process {
	s.Helper()
	client, err := cloud.New(s.Context(), cloud.Options{
		Region: "us-west-2", Credentials: cloud.StaticCredentials("id", "secret"),
		HTTPClient: &http.Client{Transport: s.emu.RoundTripper()},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	})
	time.Sleep(time.Second)
	s.emu.Reset()
	o.Cloud = client
	c, err := New(o)
	if err != nil {
		s.Fatal(err)
	}
	return process{guard.New(c), c}
}

func (s *stage) calls(action string) int { return int(s.emu.Statistics().Calls(action)) }

func (s *stage) fault(f ec2emu.Fault) {
	s.Helper()
	if _, err := s.emu.AddFault(f); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) volumeFault(f world.Fault) {
	s.Helper()
	if _, err := s.emu.World().AddFault(f); err != nil {
		s.Fatal(err)
	}
}

// change replaces knobs of the world.
func (s *stage) change(f func(k *world.Knobs)) {
	s.Helper()
	k := s.emu.World().Knobs()
	f(&k)
	if err := s.emu.World().SetKnobs(k); err != nil {
		s.Fatal(err)
	}
}

// inEC2 are the volumes that exist, without the lag of describes.
func (s *stage) inEC2() []world.Volume {
	s.Helper()
	time.Sleep(20 * time.Second) // lags are over
	answer, err := s.emu.World().DescribeVolumes(&world.DescribeVolumesRequest{})
	if err != nil {
		s.Fatal(err)
	}
	return answer.Volumes
}

func (s *stage) wantVolumes(n int) {
	s.Helper()
	if got := s.inEC2(); len(got) != n {
		s.Errorf("EC2 has %d volumes; want %d: %+v", len(got), n, got)
	}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) want(err, want error, why string) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: got %v; want %v", why, err, want)
	}
}

// creation of a volume of 8 GiB for one node.
func creation(name string) guard.CreateRequest {
	return guard.CreateRequest{
		Name: name, Range: backend.SizeRange{Required: 8 * gib},
		Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter}},
		Topology:     &backend.TopologyRequirement{Requisite: []backend.Topology{{zoneKey: testZone, zoneKeyOwn: testZone}}},
	}
}

func (s *stage) create(p process, r guard.CreateRequest) backend.Volume {
	s.Helper()
	v, err := p.CreateVolume(s.Context(), r)
	s.must(err)
	return v
}

// within runs a call that may take so long.
func within(ctx context.Context, d time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return call(ctx)
}

// took measures a call in virtual time.
func took(call func()) time.Duration {
	began := time.Now()
	call()
	return time.Since(began)
}

func withTags(t *testing.T, o tags.Options) *tags.Rules {
	t.Helper()
	r, err := tags.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
