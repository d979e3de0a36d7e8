package progress

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"
)

func TestTracker_listsWhatRuns(t *testing.T) {
	var tracker Tracker
	ctx := tracker.For(t.Context(), "CreateVolume", "pvc-1")
	first := Begin(ctx, "copying", 100)
	second := Begin(tracker.For(t.Context(), "NodeStageVolume", "id-2"), "formatting", 0)
	first.Add(30)
	first.Add(12)
	got := tracker.List()
	if len(got) != 2 || got[0].Started.After(got[1].Started) {
		t.Fatalf("the list is %+v, want two, the oldest first", got)
	}
	want := Operation{Call: "CreateVolume", Object: "pvc-1", Doing: "copying", Started: got[0].Started, Done: 42, Total: 100, Unit: Bytes}
	if got[0] != want || got[1].Object != "id-2" || got[1].Total != 0 {
		t.Errorf("the list is %+v", got)
	}
	first.End()
	first.End() // twice does no harm
	if got := tracker.List(); len(got) != 1 || got[0].Doing != "formatting" {
		t.Errorf("after the first ended, the list is %+v", got)
	}
	second.End()
	if got := tracker.List(); len(got) != 0 {
		t.Errorf("after both ended, the list is %+v", got)
	}
}

func TestNote_staysAfterTheCallUntilItIsForgotten(t *testing.T) {
	var tracker Tracker
	first := tracker.For(t.Context(), "CreateSnapshot", "snapshot-1")
	Note(first, "snap-1", "uploading", 10)
	started := tracker.List()[0].Started
	Note(tracker.For(t.Context(), "CreateSnapshot", "snapshot-1"), "snap-1", "uploading", 45)
	Note(tracker.For(t.Context(), "CreateSnapshot", "snapshot-2"), "snap-2", "uploading", 130)
	got := tracker.List()
	want := Operation{Call: "CreateSnapshot", Object: "snapshot-1", Doing: "uploading", Started: started, Done: 45, Total: 100, Unit: Percent}
	if len(got) != 2 || got[0] != want || got[1].Done != 100 {
		t.Fatalf("the list is %+v, want %+v and one at 100 %%", got, want)
	}
	Forget(tracker.For(t.Context(), "DeleteSnapshot", "snap-1"), "snap-1")
	Forget(context.Background(), "snap-2") // another driver's
	if got := tracker.List(); len(got) != 1 || got[0].Object != "snapshot-2" {
		t.Errorf("after one was forgotten, the list is %+v", got)
	}
	Note(context.Background(), "snap-3", "uploading", 1)
}

func TestNote_isForgottenWhenNoCallShowsIt(t *testing.T) {
	var tracker Tracker
	begin := time.Now().Add(-remoteLifetime)
	tracker.note(call{object: "old"}, "1", "uploading", 5, begin)
	tracker.note(call{object: "repeated"}, "2", "uploading", 5, begin)
	tracker.note(call{object: "repeated"}, "2", "uploading", 6, begin.Add(time.Second))
	if got := tracker.List(); len(got) != 1 || got[0].Object != "repeated" || !got[0].Started.Equal(begin) {
		t.Errorf("the list is %+v, want the one that was repeated", got)
	}
}

func TestBeginPercent_countsToAHundred(t *testing.T) {
	var tracker Tracker
	task := BeginPercent(tracker.For(t.Context(), "ControllerExpandVolume", "vol-1"), "modifying")
	task.Set(30)
	if got := tracker.List(); len(got) != 1 || got[0].Done != 30 || got[0].Total != 100 || got[0].Unit != Percent {
		t.Errorf("the list is %+v", got)
	}
	task.End()
}

func TestBegin_withoutATrackerIsNothing(t *testing.T) {
	task := Begin(context.Background(), "copying", 10)
	if task != nil {
		t.Fatalf("the task is %v", task)
	}
	task.Set(1)
	task.Add(1)
	task.End()
}

func TestTracker_isSafeForConcurrentUse(t *testing.T) {
	var tracker Tracker
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				task := Begin(tracker.For(context.Background(), "c", "o"), "copying", 1)
				task.Set(1)
				for _, o := range tracker.List() {
					if o.Doing != "copying" {
						t.Errorf("listed %+v", o)
					}
				}
				task.End()
			}
		})
	}
	group.Wait()
	if got := tracker.List(); len(got) != 0 {
		t.Errorf("left are %+v", got)
	}
}

func TestMeter_rateAndTimeLeft(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type seen struct {
		second float64
		done   int64
	}
	for name, test := range map[string]struct {
		total    int64
		seen     []seen
		rate     int64
		left     time.Duration
		fraction float64
	}{
		"one sample has no rate":           {total: 100, seen: []seen{{0, 10}}, fraction: .1},
		"two samples":                      {total: 100, seen: []seen{{0, 10}, {2, 30}}, rate: 10, left: 7 * time.Second, fraction: .3},
		"no progress has no rate":          {total: 100, seen: []seen{{0, 10}, {5, 10}}, fraction: .1},
		"the same instant":                 {total: 100, seen: []seen{{0, 10}, {0, 20}}, fraction: .2},
		"a clock that went back":           {total: 100, seen: []seen{{5, 10}, {1, 20}}, fraction: .2},
		"continued at an offset":           {total: 1000, seen: []seen{{0, 900}, {1, 950}}, rate: 50, left: time.Second, fraction: .95},
		"began again":                      {total: 100, seen: []seen{{0, 50}, {1, 90}, {2, 5}}, fraction: .05},
		"began again, and goes on":         {total: 100, seen: []seen{{0, 50}, {1, 90}, {2, 5}, {3, 10}}, rate: 5, left: 18 * time.Second, fraction: .1},
		"only the window counts":           {total: 10_000, seen: []seen{{0, 0}, {100, 9000}, {110, 9010}, {120, 9020}}, rate: 1, left: 980 * time.Second, fraction: .902},
		"an old sample begins the window":  {total: 200, seen: []seen{{0, 0}, {100, 100}}, rate: 1, left: 100 * time.Second, fraction: .5},
		"complete has no time left":        {total: 100, seen: []seen{{0, 0}, {1, 100}}, rate: 100, fraction: 1},
		"more than the total is the total": {total: 100, seen: []seen{{0, 0}, {1, 150}}, rate: 150, fraction: 1},
		"no total":                         {seen: []seen{{0, 0}, {1, 150}}, rate: 150, fraction: -1},
		"hardly any progress":              {total: math.MaxInt64, seen: []seen{{0, 0}, {10, 1}}, left: maximumLeft, fraction: 0},
	} {
		t.Run(name, func(t *testing.T) {
			var meter Meter
			var state State
			for _, s := range test.seen {
				at := begin.Add(time.Duration(s.second * float64(time.Second)))
				state = meter.Observe(at, Operation{Doing: "copying", Done: s.done, Total: test.total, Unit: Bytes})
			}
			fraction, known := state.Fraction()
			if !known {
				fraction = -1
			}
			if state.Rate != test.rate || state.Left != test.left || math.Abs(fraction-test.fraction) > 1e-9 {
				t.Errorf("rate %d, left %v, fraction %v; want %d, %v, %v", state.Rate, state.Left, fraction, test.rate, test.left, test.fraction)
			}
		})
	}
}

func TestMeter_anotherKindOfWorkIsMeasuredAnew(t *testing.T) {
	var meter Meter
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	meter.Observe(at, Operation{Doing: "copying", Done: 0, Total: 100})
	meter.Observe(at.Add(time.Second), Operation{Doing: "copying", Done: 50, Total: 100})
	if state := meter.Observe(at.Add(2*time.Second), Operation{Doing: "reading", Done: 60, Total: 100}); state.Rate != 0 || state.Left != 0 {
		t.Errorf("the first sample of other work has the rate %d", state.Rate)
	}
}

func TestState_isReadable(t *testing.T) {
	const gib = 1 << 30
	for want, state := range map[string]State{
		"copying 3.2 of 10.0 GiB, 210.0 MiB/s, 33s left": {Doing: "copying", Done: 32 * gib / 10, Total: 10 * gib, Unit: Bytes, Rate: 210 << 20, Left: 33*time.Second + time.Millisecond},
		"copying 0.0 of 1.0 TiB, 2h5m0s left":            {Doing: "copying", Total: 1 << 40, Unit: Bytes, Left: 2*time.Hour + 5*time.Minute + 9*time.Second},
		"copying 5 of 512 B":                             {Doing: "copying", Done: 5, Total: 512, Unit: Bytes},
		"uploading 45 %, 10s left":                       {Doing: "uploading", Done: 45, Total: 100, Unit: Percent, Rate: 3, Left: 10 * time.Second},
		"uploading 99 %":                                 {Doing: "uploading", Done: 99, Total: 100, Unit: Percent, Left: 400 * time.Millisecond},
		"uploading 0 %":                                  {Doing: "uploading", Total: 100, Unit: Percent},
		"reading 1.5 KiB, 3 B/s":                         {Doing: "reading", Done: 1536, Unit: Bytes, Rate: 3},
		"formatting":                                     {Doing: "formatting", Unit: Bytes},
	} {
		if got := state.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
