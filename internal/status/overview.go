package status

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// Limits of the overview.
const (
	// mostReasons is how many objects' reasons the overview has; each needs a walk through
	// the objects.
	mostReasons = 20
	// mostInFlight is how many steps in flight it names.
	mostInFlight = 20
	// reasonLimit bounds the search for a reason: a filesystem may not answer.
	reasonLimit = 2 * time.Second
)

// Overview is the first page.
type Overview struct {
	Counts  []Count
	Pools   []Pool
	Drivers []Driver
	// Waiting are the objects that wait longest, first those that need a person, and More
	// is how many others wait.
	Waiting []Wait
	More    int
	// Steps have not ended; MoreSteps is how many others have not.
	Steps     []Bar
	MoreSteps int
	// Problems name what cannot be read.
	Problems []string
}

// Count is how many objects of a kind there are, and how many of them wait.
type Count struct {
	Kind           string // of a Ref
	Total, Waiting int
}

// Wait is an object that waits, with the first sentence of why.
type Wait struct {
	Row
	Reason string
	// Error is the message of the driver or the controller.
	Error string
	Do    string
	State why.State
}

// Overview collects the first page. It asks why for the objects that wait longest.
func (v View) Overview(ctx context.Context) Overview {
	o := Overview{Pools: v.Pools(), Drivers: v.Drivers(), Problems: v.Problems()}
	var waiting []Row
	for _, kind := range []struct {
		name string
		rows []Row
	}{{Claim, v.Claims()}, {Volume, v.Volumes()}, {Pod, v.Pods()}, {Snapshot, v.Snapshots()}} {
		rows := slices.DeleteFunc(slices.Clone(kind.rows), func(row Row) bool { return !row.waits })
		waiting = append(waiting, rows...)
		if kind.name != Volume || len(rows) > 0 {
			o.Counts = append(o.Counts, Count{Kind: kind.name, Total: len(kind.rows), Waiting: len(rows)})
		}
	}
	slices.SortStableFunc(waiting, func(a, b Row) int { return a.waitsSince().Compare(b.waitsSince()) })
	o.More = max(0, len(waiting)-mostReasons)
	o.Waiting = v.reasons(ctx, waiting[:len(waiting)-o.More])
	o.Steps, o.MoreSteps = v.inFlight()
	return o
}

// waitsSince is when the running step began, or when the object was created.
func (r Row) waitsSince() time.Time {
	if r.Running != nil {
		return begun(*r.Running)
	}
	return r.Created
}

// reasons asks why each object waits, at the same time: one may have a filesystem that
// does not answer.
func (v View) reasons(ctx context.Context, rows []Row) []Wait {
	waits := make([]Wait, len(rows))
	var group sync.WaitGroup
	for i, row := range rows {
		group.Go(func() {
			waits[i] = Wait{Row: row, State: why.Unknown}
			report, err := v.Why(ctx, row.Ref)
			if err != nil {
				waits[i].Reason = "the reason cannot be read: " + err.Error()
				return
			}
			waits[i].State, waits[i].Reason = report.State, report.Fine
			if len(report.Findings) > 0 {
				first := report.Findings[0]
				waits[i].Reason, waits[i].Error, waits[i].Do = first.What, first.Error, first.Do
			}
		})
	}
	group.Wait()
	slices.SortStableFunc(waits, func(a, b Wait) int { return cmp.Compare(urgency(a), urgency(b)) })
	return waits
}

// urgency is lower for what needs a person.
func urgency(wait Wait) int {
	if wait.State == why.Stuck {
		return 0
	}
	return 1
}

// Why reports what an object waits for.
func (v View) Why(ctx context.Context, ref Ref) (why.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reasonLimit)
	defer cancel()
	return why.Ask(ctx, v.mirror.reader(v.source), why.Subject{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
}

// inFlight returns the steps that have not ended, the longest first.
func (v View) inFlight() (bars []Bar, more int) {
	steps := slices.DeleteFunc(v.mirror.runningSteps(), func(step journal.StepEntry) bool {
		return step.Status != journal.Started
	})
	more = max(0, len(steps)-mostInFlight)
	now := time.Now()
	for _, step := range steps[:len(steps)-more] {
		bars = append(bars, newBar(step, now))
	}
	return bars, more
}

// Problems name what cannot be read, sorted.
func (v View) Problems() (texts []string) {
	v.mirror.mu.RLock()
	defer v.mirror.mu.RUnlock()
	for _, text := range v.mirror.problems {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return slices.Compact(texts) // a lost connection is of all kinds
}

// Pools are the pools that drivers report.
func (v View) Pools() []Pool {
	if !v.source.HasJournal() {
		return v.clusterPools()
	}
	v.mirror.mu.RLock()
	defer v.mirror.mu.RUnlock()
	return slices.Clone(v.mirror.pools)
}

func (m *Mirror) knownDrivers() []Driver {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.drivers)
}

// Drivers are the drivers of a host, or those that a cluster's objects name.
func (v View) Drivers() []Driver {
	if v.source.HasJournal() {
		return v.mirror.knownDrivers()
	}
	return v.clusterDrivers()
}

// ObjectPage is everything about one object.
type ObjectPage struct {
	Ref    Ref
	Exists bool
	Row    Row
	Facts  []Fact
	// Report is the answer of why; WhyError is why there is none.
	Report   why.Report
	WhyError string
	Steps    Waterfall
	// FromEvents means that the steps come from events and timestamps.
	FromEvents bool
	Events     []Event
}

// Event is an event of an object.
type Event struct {
	Warning         bool
	Reason, Message string
	Count           int
	First, Last     time.Time
}

func sortEvents(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Reason, b.Reason))
	})
}
