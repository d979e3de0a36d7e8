package change

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// inTime runs a test in virtual time with a Changer over an EC2 of one gp3 volume
// of 10 GiB.
func inTime(t *testing.T, test func(t *testing.T, e *ec2, c *Changer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(48 * time.Hour) // so that there is a past
		e := newEC2(gp3("vol-1"))
		c := New(e, Options{})
		t.Cleanup(c.Close)
		c.stable("") // the first call; what follows is not that of a new process
		time.Sleep(time.Minute)
		test(t, e, c)
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// started runs a change in a goroutine until it waits.
func started(ctx context.Context, c *Changer, desired Desired) <-chan error {
	answer := make(chan error, 1)
	go func() { _, err := c.Apply(ctx, nil, "vol-1", desired); answer <- err }()
	synctest.Wait()
	return answer
}

func must(t *testing.T, c *Changer, desired Desired) cloud.Volume {
	t.Helper()
	v, err := c.Apply(t.Context(), nil, "vol-1", desired)
	if err != nil {
		t.Fatalf("%s: %v", desired, err)
	}
	return v
}

func ok(t *testing.T, answers ...<-chan error) {
	t.Helper()
	for i, answer := range answers {
		if err := <-answer; err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func wantCalls(t *testing.T, e *ec2, action string, want int) {
	t.Helper()
	if got := e.count(action); got != want {
		t.Errorf("%d %s, want %d; %q", got, action, want, e.journal)
	}
}

func wantVolume(t *testing.T, e *ec2, size int32, kind string, iops, throughput int32) {
	t.Helper()
	v := e.truth("vol-1")
	if v.Size != size || v.Type != kind || v.IOPS != iops || v.Throughput != throughput {
		t.Errorf("the volume is %d GiB %s, %d IOPS, %d MiB/s; want %d %s %d %d", v.Size, v.Type, v.IOPS, v.Throughput, size, kind, iops, throughput)
	}
}

// A state that is reached already takes one describe, no window and no change.
func TestApply_satisfiedIsAnsweredAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		for _, desired := range []Desired{
			{Size: 10}, {Size: 5}, {Type: "gp3", IOPS: 3000, Throughput: 125}, {Tags: map[string]string{"CSIVolumeName": "pvc"}, Untag: []string{"none"}},
		} {
			began := time.Now()
			if v := must(t, c, desired); v.Size != 10 {
				t.Errorf("%s: %d GiB", desired, v.Size)
			}
			if took := time.Since(began); took > 80*time.Millisecond {
				t.Errorf("%s: took %s", desired, took)
			}
		}
		if len(e.journal) > 0 {
			t.Errorf("%q", e.journal)
		}
	})
}

// Another process may have requested a change just before a new process started. So the new
// process describes the volume's modification before it reports that a state is reached.
func TestApply_newProcessDescribesModifications(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, _ *Changer) {
		e.rest, e.optimizes = 0, time.Second
		cold := New(e, Options{})
		defer cold.Close()
		began := time.Now()
		must(t, cold, Desired{Throughput: 125})
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("took %s", took)
		}
		if _, err := e.ModifyVolume(t.Context(), cloud.ModifyInput{VolumeID: "vol-1", Throughput: 250}); err != nil {
			t.Fatal(err)
		}
		_, err := cold.Apply(t.Context(), nil, "vol-1", Desired{Throughput: 125})
		if !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy: the volume is about to be otherwise", err)
		}
	})
}

// Expand and Modify within the window share one
// ModifyVolume with every field of both, in either order; tags come first; both
// are answered when the modification is optimizing and the size is seen.
func TestApply_expandAndModifyShareOneCall(t *testing.T) {
	yes := true
	expand := Desired{Size: 100}
	modify := Desired{IOPSPerGB: 50, KeepRatio: &yes, Throughput: 250, Tags: map[string]string{"team": "a"}}
	for name, order := range map[string][2]Desired{"expand first": {expand, modify}, "modify first": {modify, expand}} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, c *Changer) {
				began := time.Now()
				first := started(t.Context(), c, order[0])
				time.Sleep(1900 * time.Millisecond)
				ok(t, first, started(t.Context(), c, order[1]))
				took := time.Since(began)
				wantVolume(t, e, 100, "gp3", 5000, 250)
				if took < 4*time.Second || took > 4500*time.Millisecond {
					t.Errorf("took %s", took)
				}
				wantCalls(t, e, "ModifyVolume", 1)
				if len(e.journal) != 2 || !strings.HasPrefix(e.journal[0], "tag ") {
					t.Errorf("%q, want the tags and then the modification", e.journal)
				}
				v := e.truth("vol-1")
				if v.Tags[tags.IOPSPerGB] != "50" || v.Tags[tags.KeepRatio] != "true" || v.Tags["team"] != "a" {
					t.Errorf("tags %v", v.Tags)
				}
				if m := e.latest["vol-1"]; m.TargetIOPS != 5000 {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// A request after the window is another change and gets the error for that.
func TestApply_afterTheWindow(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		first := started(t.Context(), c, Desired{Size: 20})
		time.Sleep(2200 * time.Millisecond)
		late := started(t.Context(), c, Desired{Throughput: 250})
		same := started(t.Context(), c, Desired{Size: 20})
		if err := <-late; !errors.Is(err, backend.ErrBusy) || !strings.Contains(err.Error(), "20 GiB") {
			t.Errorf("got %v, want ErrBusy that names the change under way", err)
		}
		ok(t, first, same)
		wantCalls(t, e, "ModifyVolume", 1)
	})
}

// A change that contradicts the collected ones is refused at once. The error has their
// desired state, and they are carried out.
func TestApply_contradiction(t *testing.T) {
	no, yes := false, true
	for name, pair := range map[string][2]Desired{
		"size":         {{Size: 20}, {Size: 30}},
		"type":         {{Type: "io2", IOPS: 3000}, {Type: "gp2"}},
		"iops":         {{IOPS: 4000}, {IOPS: 5000}},
		"iops, ratio":  {{IOPS: 4000}, {IOPSPerGB: 400}},
		"throughput":   {{Throughput: 130}, {Throughput: 140}},
		"keep":         {{KeepRatio: &yes}, {KeepRatio: &no}},
		"tag":          {{Tags: map[string]string{"a": "1"}}, {Tags: map[string]string{"a": "2"}}},
		"tag, removed": {{Tags: map[string]string{"CSIVolumeName": "1"}}, {Untag: []string{"CSIVolumeName"}}},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, _ *ec2, c *Changer) {
				winner := started(t.Context(), c, pair[0])
				time.Sleep(time.Second)
				began := time.Now()
				_, err := c.Apply(t.Context(), nil, "vol-1", pair[1])
				if !errors.Is(err, backend.ErrBusy) || !strings.Contains(err.Error(), pair[0].String()) {
					t.Errorf("got %v, want ErrBusy that names %s", err, pair[0])
				}
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("took %s", took)
				}
				ok(t, winner)
			})
		})
	}
}

// A caller that leaves before the call was sent withdraws its part. If all callers have
// left, no call is sent.
func TestApply_cancelledCallWithdraws(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		stays := started(t.Context(), c, Desired{Throughput: 250})
		leaves := started(within(t, time.Second), c, Desired{Size: 100})
		time.Sleep(1100 * time.Millisecond)
		if err := <-leaves; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		other := started(t.Context(), c, Desired{Size: 50}) // no contradiction any more
		ok(t, stays, other)
		wantVolume(t, e, 50, "gp3", 3000, 250)
		wantCalls(t, e, "ModifyVolume", 1)
	})
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		for range 3 {
			<-started(within(t, 200*time.Millisecond), c, Desired{Size: 100, Tags: map[string]string{"a": "b"}})
		}
		time.Sleep(time.Minute)
		if len(e.journal) > 0 || len(c.groups) > 0 {
			t.Errorf("%q, %d groups", e.journal, len(c.groups))
		}
	})
}

// A caller that leaves after ModifyVolume was sent finds its outcome in the repeated
// call, in this process or another; ModifyVolume is not sent again.
func TestApply_repeatJoinsWhatWasSent(t *testing.T) {
	for _, timeout := range []time.Duration{2060 * time.Millisecond, 2090 * time.Millisecond, 3 * time.Second} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %s, restart=%t", timeout, restart), func(t *testing.T) {
				inTime(t, func(t *testing.T, e *ec2, c *Changer) {
					e.modifies = 10 * time.Second
					if err := <-started(within(t, timeout), c, Desired{Size: 20}); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
					if restart {
						c.Close()
						c = New(e, Options{})
						defer c.Close()
					}
					must(t, c, Desired{Size: 20})
					wantVolume(t, e, 20, "gp3", 3000, 125)
					if e.count("ModifyVolume") > 2 || e.latest["vol-1"] == nil {
						t.Errorf("%q", e.journal)
					}
					if timeout >= 2090*time.Millisecond {
						wantCalls(t, e, "ModifyVolume", 1)
					}
				})
			})
		}
	}
}

// An impossible change is rejected before any call, with the tags of the same
// request.
func TestApply_checksBeforeItActs(t *testing.T) {
	for name, c := range map[string]struct {
		desired Desired
		want    error
	}{
		"too large":            {Desired{Size: 70000, Tags: map[string]string{"a": "b"}}, backend.ErrOutOfRange},
		"iops":                 {Desired{IOPS: 90000, Tags: map[string]string{"a": "b"}}, backend.ErrInvalid},
		"iops for the size":    {Desired{IOPS: 6000}, backend.ErrOutOfRange},
		"throughput of others": {Desired{Type: "io2", IOPS: 1000, Throughput: 500}, backend.ErrInvalid},
		"type":                 {Desired{Type: "gp9", Untag: []string{"CSIVolumeName"}}, backend.ErrInvalid},
		"ratio":                {Desired{IOPSPerGB: 501}, backend.ErrOutOfRange},
		"too small for st1":    {Desired{Type: "st1"}, backend.ErrOutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, changer *Changer) {
				if _, err := changer.Apply(t.Context(), nil, "vol-1", c.desired); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if len(e.journal) > 0 {
					t.Errorf("%q", e.journal)
				}
			})
		})
	}
}

// A part that is impossible does not take the other with it, and one that
// is possible only together with the other is done.
func TestApply_impossiblePartFailsAlone(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		good := started(t.Context(), c, Desired{Size: 20})
		bad := started(t.Context(), c, Desired{Type: "st1"})
		if err := <-bad; !errors.Is(err, backend.ErrOutOfRange) {
			t.Errorf("got %v", err)
		}
		ok(t, good)
		wantVolume(t, e, 20, "gp3", 3000, 125)
	})
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		kind := started(t.Context(), c, Desired{Type: "st1"})
		size := started(t.Context(), c, Desired{Size: 500})
		ok(t, kind, size)
		if v := e.truth("vol-1"); v.Type != "st1" || v.Size != 500 {
			t.Errorf("%+v", v)
		}
	})
}

// The error for a modification that EC2 refuses names the tags that were changed before,
// and the repeated call carries out the rest.
func TestApply_refusedAfterTheTags(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, c *Changer) {
		e.refuse = func(action string) error {
			if action != "ModifyVolume" {
				return nil
			}
			e.refuse = nil
			return answer(action, "VolumeModificationSizeLimitExceeded", "too much storage under modification")
		}
		desired := Desired{Size: 20, Tags: map[string]string{"team": "a"}}
		_, err := c.Apply(t.Context(), nil, "vol-1", desired)
		if !errors.Is(err, backend.ErrNoSpace) || !strings.Contains(err.Error(), "tags were changed before that: set team") {
			t.Errorf("got %v", err)
		}
		must(t, c, desired)
		wantCalls(t, e, "CreateTags", 1)
		wantCalls(t, e, "ModifyVolume", 2)
	})
}
