package groupsnapshot

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestDriver_invalidAnswersLeaveTheOutcomeUnknown(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(*csi.VolumeGroupSnapshot)
		shown  string
	}{
		"no ID":            {func(g *csi.VolumeGroupSnapshot) { g.GroupSnapshotId = "" }, "without a group_snapshot_id"},
		"no members":       {func(g *csi.VolumeGroupSnapshot) { g.Snapshots = nil }, `asked for were ["vol-1" "vol-2"]`},
		"a missing member": {func(g *csi.VolumeGroupSnapshot) { g.Snapshots = g.Snapshots[:1] }, `of the volumes ["vol-1"]`},
		"a member twice":   {func(g *csi.VolumeGroupSnapshot) { g.Snapshots = append(g.Snapshots, g.Snapshots[0]) }, "twice"},
		"a stranger": {func(g *csi.VolumeGroupSnapshot) {
			g.Snapshots = append(g.Snapshots, &csi.Snapshot{SnapshotId: "x", SourceVolumeId: "vol-x"})
		}, `["vol-1" "vol-2" "vol-x"]`},
		"one ID for two":      {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = g.Snapshots[0].SnapshotId }, "twice"},
		"another volume":      {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SourceVolumeId = "vol-other" }, `"vol-other"`},
		"a member without ID": {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = "" }, `the ID ""`},
		"a negative size":     {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[0].SizeBytes = -5 }, "-5 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New(driverName)
			var sane atomic.Bool
			driver.Groups.Answer = func(g *csi.VolumeGroupSnapshot) {
				if !sane.Load() {
					row.answer(g)
				}
			}
			f := start(t, driver, group("a"))
			if o := f.becomes("a", "failed", fails(row.shown)); !marked(o) || handleOf(o) != "" {
				t.Error("what may exist was forgotten, or was believed")
			}
			f.deleteByUser("a")
			f.stays("a")
			sane.Store(true)
			f.vanishes("a")
			f.empty()
		})
	}
}

func TestDriver_aLaterAnswerWithAnotherGroupIsRejected(t *testing.T) {
	for name, lie := range map[string]func(*csi.VolumeGroupSnapshot){
		"another group":  func(g *csi.VolumeGroupSnapshot) { g.GroupSnapshotId = "another" },
		"another member": func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			driver := csidriver.New(driverName)
			driver.Snapshots.UnreadyAnswers = 2
			var answers atomic.Int32
			driver.Groups.Answer = func(g *csi.VolumeGroupSnapshot) {
				if answers.Add(1) == 2 {
					lie(g)
				}
			}
			f := start(t, driver, group("a"))
			f.happens("Warning GroupSnapshotContentCheckandUpdateFailed a", `"another"`)
			o := f.becomes("a", "ready", readyAndUnmarked)
			if handleOf(o) != groupID || members(o)[1] != groupID+"-vol-2" {
				t.Errorf("recorded %s of %q", handleOf(o), members(o))
			}
		})
	}
}

func TestDriver_thatHangsBlocksNoOtherContent(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Before = func(ctx context.Context, _ string, request any) error {
		if create, ok := request.(*csi.CreateVolumeGroupSnapshotRequest); ok && create.GetSourceVolumeIds()[0] == "vol-slow" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	f := prepare(t, driver, group("slow", of("vol-slow")), group("quick"))
	f.Env.Timeout = 100 * time.Millisecond
	f.Run(f.Env, New(f.Env, options()))
	f.becomes("quick", "ready", readyAndUnmarked)
	if o := f.becomes("slow", "failed", fails("DeadlineExceeded")); !marked(o) {
		t.Error("what may still be taken was forgotten")
	}
}

// What CreateVolumeGroupSnapshot is asked for never changes until an answer is
// final, whatever happens to the objects: a strict driver would refuse it.
func TestRequest_isTheSameEachTime(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, group("a"))
	var first *csi.CreateVolumeGroupSnapshotRequest
	driver.Before = func(_ context.Context, rpc string, request any) error {
		asked, ok := request.(*csi.CreateVolumeGroupSnapshotRequest)
		if !ok {
			return nil
		}
		if first == nil {
			first = proto.CloneOf(asked)
		}
		if !proto.Equal(first, asked) {
			t.Errorf("first %v, then %v", first, asked)
		}
		if driver.Count(rpc) < 3 {
			o := f.get("a")
			annotated("from-elsewhere", "yes")(o)
			f.Put(o)
			return context.DeadlineExceeded
		}
		return nil
	}
	f.Run(f.Env, New(f.Env, options()))
	f.becomes("a", "ready", readyAndUnmarked)
}

func groupResource() schema.GroupResource {
	return schema.GroupResource{Group: "groupsnapshot.storage.k8s.io", Resource: "volumegroupsnapshotcontents"}
}

func TestAPIServer_faultsAreRetried(t *testing.T) {
	resource := groupResource()
	for name, failure := range map[string]error{
		"conflict":  apierrors.NewConflict(resource, "a", errors.New("for a test")),
		"too many":  apierrors.NewTooManyRequests("for a test", 0),
		"internal":  apierrors.NewInternalError(errors.New("for a test")),
		"timed out": apierrors.NewTimeoutError("for a test", 0),
		"refused":   apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", resource, "a", "for a test", 0, false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := prepare(t, nil, group("a"))
			f.React("*", "volumegroupsnapshotcontents", func(q apiserver.Request) error {
				if (q.Verb == "patch" || q.Verb == "get") && rand.N(3) == 0 {
					return failure
				}
				return nil
			})
			f.Run(f.Env, New(f.Env, options()))
			f.becomes("a", "ready", readyAndUnmarked)
			f.deleteByUser("a")
			f.vanishes("a")
			f.empty()
		})
	}
}

func TestAPIServer_brokenWatchesLoseNothing(t *testing.T) {
	f := start(t, nil, group("a"))
	f.becomes("a", "ready", readyAndUnmarked)
	f.BreakWatches()
	f.Add(group("b", of("vol-3")))
	f.deleteByUser("a")
	f.vanishes("a")
	f.becomes("b", "ready", readyAndUnmarked)
}

func TestWrites_racingWithSnapshotControllerKeepBoth(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, group("a", unfinalized))
	var raced atomic.Int32
	f.React("patch", "volumegroupsnapshotcontents", func(apiserver.Request) error {
		if n := raced.Add(1); n <= 3 { // just before our first writes: as snapshot-controller adds its own
			o := f.get("a")
			annotated("from-elsewhere", string(rune('0'+n)))(o)
			f.Put(o)
		}
		return nil
	})
	f.Run(f.Env, New(f.Env, options()))
	o := f.becomes("a", "ready", readyAndUnmarked)
	if o.Annotations["from-elsewhere"] != "3" || driver.Count("CreateVolumeGroupSnapshot") != 1 {
		t.Errorf("%v after %q", o.Annotations, driver.Calls())
	}
}
