package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// crashAt runs the controller until it fails at a failpoint, and ends it there.
func crashAt(t *testing.T, f fixture, point string) {
	t.Helper()
	var err error
	if f.Env.Failpoints, err = failpoint.Parse(point + "=error"); err != nil {
		t.Fatal(err)
	}
	f.Env.Retry.Start, f.Env.Retry.Max = time.Hour, time.Hour // a dead process does not retry
	controller := New(f.Env, Options{Poll: fastPoll()})
	stop := f.Run(f.Env, controller)
	f.Eventually(func() error {
		if controller.Failures("a") == 0 {
			return fmt.Errorf("%s was not passed", point)
		}
		return nil
	})
	stop()
}

func (f fixture) restart() {
	env := f.NewEnv()
	f.Run(env, New(env, Options{Poll: fastPoll()}))
}

// consistent reports whether the driver's snapshots are those that contents know.
func (f fixture) consistent() error {
	known := map[string]bool{}
	for _, name := range []string{"a"} {
		if f.exists(name) {
			known[handleOf(f.get(name))] = true
		}
	}
	for _, id := range f.driver.SnapshotsLeft() {
		if !known[id] {
			return fmt.Errorf("no content knows snapshot %s", id)
		}
		delete(known, id)
	}
	delete(known, "")
	if len(known) > 0 {
		return fmt.Errorf("the driver has not %v", known)
	}
	return nil
}

func TestCrash_whileASnapshotIsTaken(t *testing.T) {
	for _, point := range []string{"snapshot/marked", "snapshot/called", "snapshot/status"} {
		for _, end := range []string{"kept", "deleted meanwhile", "retained, deleted meanwhile"} {
			t.Run(point+", "+end, func(t *testing.T) {
				driver := csidriver.New(driverName)
				driver.Snapshots.UnreadyAnswers = 1
				object := dynamic("a")
				if strings.HasPrefix(end, "retained") {
					retain(object)
				}
				f := prepare(t, driver, object)
				crashAt(t, f, point)
				if !marked(f.get("a")) {
					t.Fatal("no mark says that the driver was called")
				}
				if end == "kept" {
					f.restart()
					f.becomes("a", "ready", readyAndUnmarked)
					if err := f.consistent(); err != nil {
						t.Error(err)
					}
					return
				}
				f.deleteByUser("a")
				f.restart()
				f.vanishes("a")
				wanted := 0
				if strings.HasPrefix(end, "retained") {
					wanted = 1 // as its policy says
				}
				if left := driver.SnapshotsLeft(); len(left) != wanted {
					t.Errorf("still at the driver: %q", left)
				}
			})
		}
	}
}

func TestCrash_whileASnapshotIsDeleted(t *testing.T) {
	for _, point := range []string{"snapshot/deleted", "snapshot/cleared"} {
		t.Run(point, func(t *testing.T) {
			driver := csidriver.New(driverName)
			id := driver.AddSnapshot("old", "vol-a")
			f := prepare(t, driver, dynamic("a", takenAs(id, true)))
			f.deleteByUser("a")
			crashAt(t, f, point)
			if !f.exists("a") {
				t.Fatal("the content is gone already")
			}
			f.restart()
			f.vanishes("a")
			if err := f.consistent(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cache that still shows a content which is gone would have its snapshot
// taken again, and no content would record it.
func TestStaleCache_createsNoSnapshotOfADeletedContent(t *testing.T) {
	for name, shown := range map[string]change{
		"being created": markedYes,
		"not ready":     takenAs("id-snapshot-uid-a", false),
		"new":           func(*snapshotv1.VolumeSnapshotContent) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := prepare(t, nil, dynamic("a", shown))
			controller := New(f.Env, Options{Poll: fastPoll()})
			f.Start()
			if err := f.Env.WaitServed(f.Context(), "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", "volumesnapshotclasses"); err != nil {
				t.Fatal(err)
			}
			stale, gone := f.get("a"), f.get("a")
			gone.Finalizers = nil
			f.Put(gone)
			f.Delete(gone)
			if _, err := controller.Do(f.Context(), stale); !errors.Is(err, content.ErrGone) {
				t.Errorf("it went on: %v", err)
			}
			if got := f.driver.Count("CreateSnapshot"); got != 0 {
				t.Errorf("the driver was asked %d times", got)
			}
		})
	}
}
