package volumes

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/operations"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// slowDriver copies a volume: CreateVolume returns when the host has seen what it needs.
type slowDriver struct {
	asked atomic.Int64
	enter chan struct{} // closed when CreateVolume runs
	leave chan struct{} // closed to let it return
}

func (s *slowDriver) configure(d *csidriver.Driver) {
	s.enter, s.leave = make(chan struct{}), make(chan struct{})
	d.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateVolume" {
			close(s.enter)
			<-s.leave
		}
		return nil
	}
	d.Operations = func() []*operations.Operation {
		count := s.asked.Add(1)
		return []*operations.Operation{
			{Call: "CreateVolume", Object: "pvc-of-another", Doing: "copying", Done: 1, Total: 2, Unit: operations.Unit_BYTES},
			{Call: "CreateVolume", Object: "pvc-uid-data", Doing: "copying", Done: min(count, 50), Total: 50, Unit: operations.Unit_BYTES},
		}
	}
}

// watch makes the manager ask soon, and gives each event to see.
func (w *world) watch(see func(Event)) {
	w.manager.askEvery = time.Millisecond
	before := w.manager.options.Observe
	w.manager.options.Observe = func(event Event) {
		before(event)
		see(event)
	}
}

func TestProgress_ofALongStepIsReportedUntilItEnds(t *testing.T) {
	var slow slowDriver
	w := newWorld(t, slow.configure)
	reported := 0
	w.watch(func(event Event) {
		if event.Progress == nil {
			return
		}
		if reported++; reported == 5 {
			close(slow.leave)
		}
	})
	w.ensured("data")

	var states []int64
	for i, event := range w.events {
		so := event.Progress
		switch {
		case so == nil:
			continue
		case event.Step != StepCreate || event.Status != Started || event.Volume != "claim ns/data" || len(event.About) == 0:
			t.Errorf("progress is reported with %+v", event)
		case so.Doing != "copying" || so.Total != 50:
			t.Errorf("the progress is %+v", so)
		case i == len(w.events)-1:
			t.Error("progress is reported after the end of the step")
		}
		states = append(states, so.Done)
	}
	if len(states) < 5 || !slices.IsSorted(states) || states[0] < 1 {
		t.Errorf("the progress was %d", states)
	}
	if last := w.events[len(w.events)-1]; last.Status != Done || last.Progress != nil {
		t.Errorf("the last event is %+v", last)
	}
}

// The call ends, but the driver goes on: the last that is known stays.
func TestProgress_staysWhileAStepIsRepeated(t *testing.T) {
	var slow slowDriver
	w := newWorld(t, slow.configure)
	w.driver.After = failing("CreateVolume", codes.Aborted, 1)
	enterOnce := w.driver.Before
	first := true
	w.driver.Before = func(ctx context.Context, rpc string, request any) error {
		if rpc != "CreateVolume" || !first {
			return nil
		}
		first = false
		return enterOnce(ctx, rpc, request)
	}
	let := false
	w.watch(func(event Event) {
		if event.Progress != nil && !let {
			let = true
			close(slow.leave)
		}
	})
	w.ensured("data")
	index := slices.IndexFunc(w.events, func(e Event) bool { return e.Status == Retrying })
	if index < 0 || w.events[index].Progress == nil || w.events[index].Progress.Done < 1 {
		t.Fatalf("the events are %+v, want one that is retried, with its progress", w.events)
	}
}

func TestProgress_aDriverThatLacksItIsAskedOnce(t *testing.T) {
	w := newWorld(t)
	w.manager.askEvery = time.Millisecond
	of := subject{label: "x", driver: w.driver.Name, handle: "id"}
	if running, err := w.manager.operations(t.Context(), of.driver); err == nil {
		t.Fatalf("the driver answers %v", running)
	}
	stop := w.manager.followStep(t.Context(), of, nil)
	if so := stop(); so != nil {
		t.Errorf("the progress is %v", so)
	}
	w.calls() // none: the question did not reach a service
}

func TestProgress_ofAWorkThatEndsIsCleared(t *testing.T) {
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Operations = func() []*operations.Operation { return nil }
	})
	w.manager.askEvery = time.Millisecond
	var states []bool
	cleared := make(chan struct{})
	follower := &follower{manager: w.manager, of: subject{driver: w.driver.Name, request: "one"}}
	follower.report = func(so *progress.State) {
		if states = append(states, so != nil); so == nil {
			close(cleared)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follower.show(nil) // nothing is known yet: no report
	follower.show([]progress.Operation{{Object: "one", Doing: "copying"}, {Object: "two", Doing: "reading"}})
	ended := make(chan struct{})
	go func() { defer close(ended); follower.run(ctx) }()
	<-cleared
	cancel()
	<-ended
	if !slices.Equal(states, []bool{true, false}) {
		t.Errorf("the reports were %v, want one with work and one without", states)
	}
}

// A snapshot that exists but cannot be restored yet is a step of its own, until it is
// ready or deleted.
func TestProgress_ofAnUploadIsReportedUntilTheSnapshotIsReady(t *testing.T) {
	for name, test := range map[string]struct {
		unready int
		last    Status
	}{"ready": {2, Done}, "deleted before": {1000, Failed}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var percent int64
			var uploads []Event
			reported, ended := make(chan struct{}), make(chan struct{})
			d := &daemon{world: newWorld(t, func(driver *csidriver.Driver) {
				driver.Snapshots.UnreadyAnswers = test.unready
				driver.Operations = func() []*operations.Operation {
					mu.Lock()
					defer mu.Unlock()
					percent += 30
					return []*operations.Operation{{Call: "CreateSnapshot", Object: "snapshot-uid-s", Doing: "uploading",
						Done: percent, Total: 100, Unit: operations.Unit_PERCENT}}
				}
			})}
			d.observe = func(event Event) {
				mu.Lock()
				defer mu.Unlock()
				if event.Step != StepUpload {
					return
				}
				uploads = append(uploads, event)
				switch {
				case event.Status != Started:
					close(ended)
				case event.Progress != nil && len(uploads) == 2:
					close(reported)
				}
			}
			d.start("")
			t.Cleanup(func() { d.stop() })
			source := d.claim("data", protected)
			d.isBound(source)
			d.put(func(tx *store.Tx) error {
				return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
					ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
					Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
				})
			})
			d.snapshot("s", "data")
			<-reported
			if test.last == Failed {
				d.erase(snapshotResource, "ns/s")
			}
			<-ended
			mu.Lock()
			defer mu.Unlock()
			first, last := uploads[0], uploads[len(uploads)-1]
			if first.Progress != nil || first.Volume != "snapshot ns/s" || first.About[0].Kind != "VolumeSnapshot" {
				t.Errorf("the first event is %+v", first)
			}
			if so := uploads[1].Progress; so == nil || so.String() != "uploading 30 %" || so.Total != 100 {
				t.Errorf("the progress is %+v", so)
			}
			if last.Status != test.last || last.Progress != nil {
				t.Errorf("the last event is %+v", last)
			}
		})
	}
}

// A driver that hangs gets one question, however many steps wait for it.
func TestProgress_aHungDriverGetsOneQuestion(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Operations = func() []*operations.Operation {
			asked <- struct{}{}
			<-release
			return nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	const steps = 20
	errs := make(chan error, steps)
	for range steps {
		go func() {
			_, err := w.manager.operations(ctx, w.driver.Name)
			errs <- err
		}()
	}
	<-asked
	cancel()
	for range steps {
		if err := <-errs; err == nil {
			t.Error("a question was answered")
		}
	}
	if len(asked) > 0 {
		t.Errorf("the driver was asked %d times more", len(asked))
	}
	close(release)
}
