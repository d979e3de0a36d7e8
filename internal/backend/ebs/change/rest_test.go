package change

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// While the last modification is optimizing, another change is rejected at once, with
// state, progress and time. A request for the present state, or for that of the
// modification, succeeds.
func TestApply_whileOptimizing(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		must(t, c, Desired{Size: 20})
		time.Sleep(15 * time.Minute)
		began := time.Now()
		_, err := c.Apply(t.Context(), nil, "vol-1", Desired{Size: 30})
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("took %s", took)
		}
		m := e.latest["vol-1"]
		if !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		for _, want := range []string{"optimizing", "25 %", "20 GiB", stamp(m.Start), stamp(m.Start.Add(6 * time.Hour))} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
		must(t, c, Desired{Size: 20})
		must(t, c, Desired{Tags: map[string]string{"a": "b"}})
		wantCalls(t, e, "ModifyVolume", 1)
	})
}

// EC2 shows the old volume still, but the modification that was requested.
func TestApply_identicalTargetSucceeds(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		must(t, c, Desired{Throughput: 250})
		old := gp3("vol-1")
		began := time.Now()
		if _, err := c.Apply(t.Context(), &old, "vol-1", Desired{Throughput: 250}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("took %s", took)
		}
		wantCalls(t, e, "ModifyVolume", 1)
	})
}

// The error names the cooldown, and when it ends by both rules.
func TestApply_cooldown(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		must(t, c, Desired{Size: 20})
		start := e.latest["vol-1"].Start
		time.Sleep(2 * time.Hour)
		_, err := c.Apply(t.Context(), nil, "vol-1", Desired{Size: 30})
		if !errors.Is(err, backend.ErrNoSpace) {
			t.Errorf("got %v, want ErrNoSpace", err)
		}
		for _, want := range []string{stamp(start), stamp(start.Add(6 * time.Hour)), stamp(start.Add(24 * time.Hour)), "maximum modification rate"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
		time.Sleep(4 * time.Hour)
		must(t, c, Desired{Size: 30})
	})
}

// If another process began the requested modification, Apply waits for it and does
// not begin a second one.
func TestApply_joinsTheModificationOfAnother(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		e.modifies = 20 * time.Second
		if _, err := e.ModifyVolume(t.Context(), cloud.ModifyInput{VolumeID: "vol-1", Size: 20}); err != nil {
			t.Fatal(err)
		}
		must(t, c, Desired{Size: 20})
		wantVolume(t, e, 20, "gp3", 3000, 125)
		wantCalls(t, e, "ModifyVolume", 1)
	})
	inTime(t, func(t *testing.T, e *ec2, c *Changer) { // it begins within the window
		e.modifies = 20 * time.Second
		waiting := started(t.Context(), c, Desired{Size: 20})
		time.Sleep(time.Second)
		if _, err := e.ModifyVolume(t.Context(), cloud.ModifyInput{VolumeID: "vol-1", Size: 20}); err != nil {
			t.Fatal(err)
		}
		ok(t, waiting)
		wantVolume(t, e, 20, "gp3", 3000, 125)
	})
}

// A modification that fails inside EC2 is reported as a transient error; a retry works.
func TestApply_failedModification(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		e.fails = true
		_, err := c.Apply(t.Context(), nil, "vol-1", Desired{Size: 20})
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "a fault of the service") {
			t.Errorf("got %v", err)
		}
		e.fails = false
		e.latest["vol-1"].State = cloud.ModificationFailed
		delete(e.latest, "vol-1")
		must(t, c, Desired{Size: 20})
	})
}

// After a lost answer, Apply polls for the modification. It sends ModifyVolume again
// only when EC2 certainly has not received it.
func TestApply_lostAnswer(t *testing.T) {
	for _, executed := range []bool{true, false} {
		t.Run(fmt.Sprintf("executed=%t", executed), func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, c *Changer) {
				once := func(action string) bool {
					if action == "ModifyVolume" {
						e.lose, e.refuse = nil, nil
						return true
					}
					return false
				}
				e.lose = once
				if !executed {
					e.refuse = func(string) error { return errors.New("connection reset") }
				}
				must(t, c, Desired{Size: 20})
				wantCalls(t, e, "ModifyVolume", map[bool]int{true: 1, false: 2}[executed])
				wantVolume(t, e, 20, "gp3", 3000, 125)
			})
		})
	}
}

// An answer is lost, and EC2 shows the modification only some seconds later.
func TestApply_lostAnswerAndALateEC2(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		e.lose = func(action string) bool { return action == "ModifyVolume" && e.count("ModifyVolume") == 1 }
		e.lag = func() time.Duration { return 4 * time.Second }
		must(t, c, Desired{Size: 20})
		wantCalls(t, e, "ModifyVolume", 1)
	})
}

// The size is confirmed by the volume, not by the modification alone.
func TestApply_confirmsTheSize(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		e.lag = func() time.Duration { return time.Second }
		if v := must(t, c, Desired{Size: 20}); v.Size != 20 {
			t.Errorf("%d GiB", v.Size)
		}
	})
}

// A missing volume is ErrNotFound.
func TestApply_missingVolume(t *testing.T) {
	inTime(t, func(t *testing.T, _ *ec2, c *Changer) {
		if _, err := c.Apply(t.Context(), nil, "vol-none", Desired{Size: 20}); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	})
}

// A volume that was never modified has no modification, which is not an error.
func TestApply_neverModified(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		if _, found, err := e.Modification(t.Context(), "vol-1"); found || err != nil {
			t.Fatal(found, err)
		}
		must(t, c, Desired{Size: 20})
	})
}

// allowAutoIOPSIncreaseOnModify: the ratio that was once requested is kept when
// the volume grows, within what the type allows, and only if so.
func TestApply_keepsTheRatio(t *testing.T) {
	off := false
	for name, c := range map[string]struct {
		tags    map[string]string
		desired Desired
		iops    int32
		moded   bool
	}{
		"kept":        {map[string]string{tags.IOPSPerGB: "100", tags.KeepRatio: "true"}, Desired{Size: 50}, 5000, true},
		"not allowed": {map[string]string{tags.IOPSPerGB: "100"}, Desired{Size: 50}, 3000, true},
		"switched off with the growth": {map[string]string{tags.IOPSPerGB: "100", tags.KeepRatio: "true"},
			Desired{Size: 50, KeepRatio: &off}, 3000, true},
		"iops given with the growth": {map[string]string{tags.IOPSPerGB: "100", tags.KeepRatio: "true"},
			Desired{Size: 50, IOPS: 4000}, 4000, true},
		"bounded by the type": {map[string]string{tags.IOPSPerGB: "500", tags.KeepRatio: "true"}, Desired{Size: 1000}, 80000, true},
		"never less":          {map[string]string{tags.IOPSPerGB: "10", tags.KeepRatio: "true"}, Desired{Size: 50}, 3000, true},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, changer *Changer) {
				v := gp3("vol-1")
				for key, value := range c.tags {
					v.Tags[key] = value
				}
				e.states["vol-1"] = []state{{volume: v}}
				must(t, changer, c.desired)
				wantVolume(t, e, c.desired.Size, "gp3", c.iops, 125)
				if _, still := e.truth("vol-1").Tags[tags.IOPSPerGB]; still == (c.desired.IOPS != 0) {
					t.Errorf("tags %v", e.truth("vol-1").Tags)
				}
			})
		})
	}
}

func TestClose_endsCalls(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		answered := started(t.Context(), c, Desired{Size: 20})
		time.Sleep(time.Second)
		c.Close()
		if err := <-answered; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Apply(t.Context(), nil, "vol-1", Desired{Size: 20}); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		wantCalls(t, e, "ModifyVolume", 0)
	})
}

// A crash after CreateTags and before ModifyVolume.
func TestApply_crashBetweenTagsAndModification(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		yes := true
		desired := Desired{Size: 100, IOPSPerGB: 50, KeepRatio: &yes}
		answered := started(t.Context(), c, desired)
		for e.count("CreateTags") == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(26 * time.Millisecond) // EC2 has done it; its answer is on the way
		c.Close()
		if err := <-answered; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		wantCalls(t, e, "ModifyVolume", 0)
		second := New(e, Options{})
		defer second.Close()
		must(t, second, desired)
		wantVolume(t, e, 100, "gp3", 5000, 125)
		wantCalls(t, e, "CreateTags", 1)
	})
}

// Tags alone make no modification, and so do not spend one.
func TestApply_tagsAlone(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		must(t, c, Desired{Tags: map[string]string{"a": "1", "b": "2"}})
		v := must(t, c, Desired{Tags: map[string]string{"b": "3"}, Untag: []string{"a"}})
		if e.truth("vol-1").Tags["b"] != "3" || v.Tags["b"] != "3" || v.Tags["a"] != "" || e.truth("vol-1").Tags["a"] != "" {
			t.Errorf("%v, %v", e.truth("vol-1").Tags, v.Tags)
		}
		if last := e.journal[len(e.journal)-2:]; !strings.HasPrefix(last[0], "untag") || !strings.HasPrefix(last[1], "tag") {
			t.Errorf("%q, want the removal first", last)
		}
		wantCalls(t, e, "ModifyVolume", 0)
	})
}
