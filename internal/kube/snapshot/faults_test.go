package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestDriver_invalidAnswersLeaveTheOutcomeUnknown(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(*csi.Snapshot)
		shown  string
	}{
		"no ID":          {func(s *csi.Snapshot) { s.SnapshotId = "" }, "without a snapshot_id"},
		"another volume": {func(s *csi.Snapshot) { s.SourceVolumeId = "vol-other" }, `"vol-other"`},
		"negative size":  {func(s *csi.Snapshot) { s.SizeBytes = -5 }, "-5 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			driver := csidriver.New(driverName)
			var sane atomic.Bool
			driver.Snapshots.Answer = func(s *csi.Snapshot) {
				if !sane.Load() {
					row.answer(s)
				}
			}
			f := start(t, driver, dynamic("a"))
			if o := f.becomes("a", "failed", fails(row.shown)); !marked(o) {
				t.Error("what may exist was forgotten")
			}
			f.deleteByUser("a")
			f.Never(50*time.Millisecond, func() error {
				if !f.exists("a") {
					return errors.New("the content went while its snapshot may exist")
				}
				return nil
			})
			sane.Store(true)
			f.vanishes("a")
			if left := driver.SnapshotsLeft(); left != nil {
				t.Errorf("still at the driver: %q", left)
			}
		})
	}
}

func TestDriver_aLaterAnswerWithAnotherSnapshotIsRejected(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.UnreadyAnswers = 2
	var answers atomic.Int32
	driver.Snapshots.Answer = func(s *csi.Snapshot) {
		if answers.Add(1) == 2 {
			s.SnapshotId = "another"
		}
	}
	f := start(t, driver, dynamic("a"))
	f.happens("Warning SnapshotContentCheckandUpdateFailed a", `"another"`)
	if o := f.becomes("a", "ready", readyAndUnmarked); handleOf(o) != "id-snapshot-uid-a" {
		t.Errorf("recorded %s", handleOf(o))
	}
}

func TestDriver_thatHangsBlocksNoOtherContent(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Before = func(ctx context.Context, _ string, request any) error {
		if create, ok := request.(*csi.CreateSnapshotRequest); ok && create.GetSourceVolumeId() == "vol-slow" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	f := prepare(t, driver, dynamic("slow"), dynamic("quick"))
	f.Env.Timeout = 100 * time.Millisecond
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.becomes("quick", "ready", readyAndUnmarked)
	if o := f.becomes("slow", "failed", fails("DeadlineExceeded")); !marked(o) {
		t.Error("what may still be taken was forgotten")
	}
}

func TestDriver_retriesTheCallOfADriverThatDied(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	driver := csidriver.New(driverName)
	var stop func()
	serve := func() {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
		if err != nil {
			t.Error(err)
			return
		}
		stop = driver.Serve(listener)
	}
	serve()
	died := make(chan struct{})
	driver.After = func(ctx context.Context, rpc string, _ any) error {
		if rpc == "CreateSnapshot" && driver.Count(rpc) == 1 {
			close(died)
			<-ctx.Done()
		}
		return nil
	}
	f := prepare(t, driver, dynamic("a"))
	client, err := csiclient.Dial(socket, csiclient.Options{Driver: driverName})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	f.Env.CSI = client
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	<-died
	stop()
	if o := f.becomes("a", "failed", fails("Unavailable")); !marked(o) {
		t.Error("what was taken was forgotten")
	}
	serve()
	t.Cleanup(func() { stop() })
	f.becomes("a", "ready", readyAndUnmarked)
	if left := driver.SnapshotsLeft(); len(left) != 1 {
		t.Errorf("at the driver: %q", left)
	}
}

func TestAPIServer_faultsAreRetried(t *testing.T) {
	resource := schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents"}
	for name, failure := range map[string]error{
		"conflict":  apierrors.NewConflict(resource, "a", errors.New("for a test")),
		"too many":  apierrors.NewTooManyRequests("for a test", 0),
		"internal":  apierrors.NewInternalError(errors.New("for a test")),
		"timed out": apierrors.NewTimeoutError("for a test", 0),
		"refused":   apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", resource, "a", "for a test", 0, false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := prepare(t, nil, dynamic("a"))
			f.React("*", "volumesnapshotcontents", func(q apiserver.Request) error {
				if (q.Verb == "patch" || q.Verb == "get") && rand.N(3) == 0 {
					return failure
				}
				return nil
			})
			f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
			f.eventually("a", readyAndUnmarked)
			f.insistByUser("a")
			f.Eventually(func() error {
				if left := f.driver.SnapshotsLeft(); left != nil {
					return errors.New("the snapshot is left")
				}
				return nil
			})
		})
	}
}

func TestAPIServer_brokenWatchesLoseNothing(t *testing.T) {
	f := start(t, nil, dynamic("a"))
	f.becomes("a", "ready", readyAndUnmarked)
	f.BreakWatches()
	f.Add(dynamic("b"))
	f.deleteByUser("a")
	f.vanishes("a")
	f.becomes("b", "ready", readyAndUnmarked)
}

func TestWrites_racingWithSnapshotControllerKeepBoth(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, dynamic("a", unfinalized))
	var raced atomic.Int32
	f.React("patch", "volumesnapshotcontents", func(apiserver.Request) error {
		if n := raced.Add(1); n <= 3 { // just before our first writes: as snapshot-controller adds its own
			o := f.cached("a")
			annotated("from-elsewhere", string(rune('0'+n)))(o)
			f.Put(o)
		}
		return nil
	})
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	o := f.becomes("a", "ready", readyAndUnmarked)
	if o.Annotations["from-elsewhere"] != "3" || driver.Count("CreateSnapshot") != 1 {
		t.Errorf("%v after %q", o.Annotations, driver.Calls())
	}
}

func TestRejection_isNotRetriedAtOnce(t *testing.T) {
	resource := schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents"}
	f := prepare(t, nil, dynamic("a"))
	f.Env.Retry.Start, f.Env.Retry.Max = 20*time.Millisecond, 20*time.Millisecond
	var tries atomic.Int32
	f.React("patch", "volumesnapshotcontents", func(q apiserver.Request) error {
		if q.Subresource != "status" {
			return nil
		}
		tries.Add(1)
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", resource, "a", "restoreSize: must be less", 0, false)
	})
	begun := time.Now()
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.Eventually(func() error {
		if got := tries.Load(); got < 10 {
			return fmt.Errorf("%d tries", got)
		}
		return nil
	})
	got := tries.Load()
	if took := time.Since(begun); time.Duration(got) > took/(20*time.Millisecond)+5 {
		t.Errorf("%d tries in %v with a pause of 20 ms", got, took)
	}
	if o := f.get("a"); !marked(o) {
		t.Error("what was taken was forgotten")
	}
}
