package groupsnapshot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// crashAt runs the controller until it fails at a point, and ends it there.
func crashAt(t *testing.T, f fixture, point string) {
	t.Helper()
	var err error
	if f.Env.Failpoints, err = failpoint.Parse(point + "=error"); err != nil {
		t.Fatal(err)
	}
	f.Env.Retry.Start, f.Env.Retry.Max = time.Hour, time.Hour // it is dead: it does not try again
	controller := New(f.Env, options())
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
	f.Run(env, New(env, options()))
}

func TestCrash_whileAGroupIsTaken(t *testing.T) {
	for _, point := range []string{"groupsnapshot/marked", "groupsnapshot/called", "groupsnapshot/status"} {
		for _, end := range []string{"kept", "deleted meanwhile", "retained, deleted meanwhile"} {
			t.Run(point+", "+end, func(t *testing.T) {
				driver := csidriver.New(driverName)
				driver.Snapshots.UnreadyAnswers = 1
				object, wanted := group("a"), 0
				if strings.HasPrefix(end, "retained") {
					retain(object)
					wanted = 1 // as its policy says
				}
				f := prepare(t, driver, object)
				crashAt(t, f, point)
				if !marked(f.get("a")) {
					t.Fatal("no mark says that the driver was called")
				}
				if end == "kept" {
					f.restart()
					if o := f.becomes("a", "ready", readyAndUnmarked); handleOf(o) != groupID {
						t.Errorf("the content is about %s", handleOf(o))
					}
					wanted = 1
				} else {
					f.deleteByUser("a")
					f.restart()
					f.vanishes("a")
				}
				if groups, snapshots := driver.GroupsLeft(), driver.SnapshotsLeft(); len(groups) != wanted || len(snapshots) != 2*wanted {
					t.Errorf("still at the driver: %q, %q", groups, snapshots)
				}
			})
		}
	}
}

func TestCrash_whileAGroupIsDeleted(t *testing.T) {
	for _, point := range []string{"groupsnapshot/deleted", "groupsnapshot/cleared"} {
		t.Run(point, func(t *testing.T) {
			driver := csidriver.New(driverName)
			id, members := driver.AddGroup("old", "vol-1", "vol-2")
			f := prepare(t, driver, group("a", takenAs(id, true, members...)))
			f.deleteByUser("a")
			crashAt(t, f, point)
			f.stays("a")
			f.restart()
			f.vanishes("a")
			f.empty()
		})
	}
}

// A cache that still shows a content which is gone would have its snapshots
// taken again, and no content would record them.
func TestStaleCache_createsNoSnapshotsOfADeletedContent(t *testing.T) {
	for name, shown := range map[string]change{
		"being created": markedYes,
		"new":           func(*groupv1.VolumeGroupSnapshotContent) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := prepare(t, nil, group("a", shown))
			controller := New(f.Env, options())
			f.Start()
			if err := f.Env.WaitServed(f.Context(), "groupsnapshot.storage.k8s.io", "v1", "volumegroupsnapshotcontents", "volumegroupsnapshotclasses"); err != nil {
				t.Fatal(err)
			}
			stale, gone := f.get("a"), f.get("a")
			gone.Finalizers = nil
			f.Put(gone)
			f.Delete(gone)
			if _, err := controller.Do(f.Context(), stale); !errors.Is(err, content.ErrGone) {
				t.Errorf("it went on: %v", err)
			}
			if calls := f.driver.Calls(); len(calls) > 0 {
				t.Errorf("the driver was asked: %q", calls)
			}
		})
	}
}
