package ec2emu

import (
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func TestFaults_hitTheCallsTheyAreFor(t *testing.T) {
	start := time.Unix(0, 0)
	names := func(values ...string) func(string) bool {
		return func(v string) bool {
			for _, value := range values {
				if value == v {
					return true
				}
			}
			return false
		}
	}
	type attempt struct {
		action string
		value  string
		after  time.Duration
		hit    bool
	}
	for name, c := range map[string]struct {
		fault Fault
		calls []attempt
	}{
		"all": {Fault{Kind: FaultError}, []attempt{{"CreateVolume", "", 0, true}, {"DeleteVolume", "", 0, true}}},
		"one action": {Fault{Kind: FaultError, Action: "CreateVolume"},
			[]attempt{{"DeleteVolume", "", 0, false}, {"CreateVolume", "", 0, true}}},
		"one resource": {Fault{Kind: FaultDrop, Resource: "vol-1"},
			[]attempt{{"AttachVolume", "vol-2", 0, false}, {"AttachVolume", "vol-1", 0, true}}},
		"the third and fourth": {Fault{Kind: FaultDropReply, Skip: 2, Count: 2},
			[]attempt{{"DeleteTags", "", 0, false}, {"DeleteTags", "", 0, false}, {"DeleteTags", "", 0, true}, {"DeleteTags", "", 0, true}, {"DeleteTags", "", 0, false}}},
		"for a time": {Fault{Kind: FaultThrottle, After: world.Span(time.Second), For: world.Span(time.Second)},
			[]attempt{{"DeleteTags", "", 0, false}, {"DeleteTags", "", time.Second, true}, {"DeleteTags", "", 1999 * time.Millisecond, true}, {"DeleteTags", "", 2 * time.Second, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := faults{dice: newDice(1, 1)}
			if _, err := s.add(c.fault, start); err != nil {
				t.Fatal(err)
			}
			for i, call := range c.calls {
				if hit := s.hit(call.action, start.Add(call.after), names(call.value)) != nil; hit != call.hit {
					t.Errorf("call %d %+v: hit %v", i, call, hit)
				}
			}
		})
	}
}

func TestFaults_hitAShareOfTheCalls(t *testing.T) {
	s := faults{dice: newDice(1, 1)}
	if _, err := s.add(Fault{Kind: FaultError, Probability: 0.2}, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	hits := 0
	for range 10_000 {
		if s.hit("A", time.Unix(0, 0), func(string) bool { return false }) != nil {
			hits++
		}
	}
	if hits < 1800 || hits > 2200 {
		t.Errorf("%d of 10,000 calls were hit, want about 2,000", hits)
	}
}

func TestFault_refusesWhatMakesNoSense(t *testing.T) {
	for name, f := range map[string]Fault{
		"no kind":         {},
		"unknown kind":    {Kind: "explode"},
		"no delay":        {Kind: FaultSlowBody},
		"probability":     {Kind: FaultError, Probability: 1.5},
		"negative count":  {Kind: FaultError, Count: -1},
		"no HTTP status":  {Kind: FaultError, Status: 42},
		"unknown action":  {Kind: FaultError, Action: "CreateVolumes"},
		"negative period": {Kind: FaultError, For: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := faults{dice: newDice(1, 1)}
			if _, err := s.add(f, time.Unix(0, 0)); err == nil {
				t.Errorf("%+v was accepted", f)
			}
		})
	}
}
