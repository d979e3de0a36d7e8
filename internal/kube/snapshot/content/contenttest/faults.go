package contenttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// Refused returns the API server's error for a patch with a status code.
func (s *Suite[T]) Refused(code int) error {
	resource := schema.GroupResource{Group: s.Traits.Group.Group, Resource: s.resource()}
	return apierrors.NewGenericServerResponse(code, "patch", resource, "a", "for a test", 0, false)
}

func (s *Suite[T]) retriesFaultsOfTheAPIServer(t *testing.T) {
	for name, failure := range map[string]error{
		"conflict":  s.Refused(http.StatusConflict),
		"too many":  apierrors.NewTooManyRequests("for a test", 0),
		"internal":  apierrors.NewInternalError(errors.New("for a test")),
		"timed out": apierrors.NewTimeoutError("for a test", 0),
		"refused":   s.Refused(http.StatusUnprocessableEntity),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := s.prepare(t, nil, s.Make("a"))
			f.React("*", s.resource(), func(q apiserver.Request) error {
				if (q.Verb == "patch" || q.Verb == "get") && rand.N(3) == 0 {
					return failure
				}
				return nil
			})
			f.run(options())
			f.Done("a")
			f.DeleteByUser("a")
			f.Vanishes("a")
			f.AtDriver(0)
		})
	}
}

func (s *Suite[T]) survivesBrokenWatches(t *testing.T) {
	f := s.Start(t, nil, s.Make("a"))
	f.Done("a")
	f.BreakWatches()
	f.Add(s.Make("b", func(o T) { s.Of(o, "vol-b") }))
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.Done("b")
}

func (s *Suite[T]) keepsConcurrentWrites(t *testing.T) {
	f := s.prepare(t, nil, s.Make("a", s.Unfinalized))
	var raced atomic.Int32
	f.React("patch", s.resource(), func(apiserver.Request) error {
		if n := raced.Add(1); n <= 3 { // just before the controller's first writes, as snapshot-controller does
			o := f.Get("a")
			s.Annotated("from-elsewhere", fmt.Sprint(n))(o)
			f.Put(o)
		}
		return nil
	})
	f.run(options())
	o := f.Done("a")
	if o.GetAnnotations()["from-elsewhere"] != "3" || f.Driver.Count(s.Create) != 1 {
		t.Errorf("%v after %q", o.GetAnnotations(), f.Driver.Calls())
	}
}

func (s *Suite[T]) pausesAfterARejectedWrite(t *testing.T) {
	const pause = 20 * time.Millisecond
	f := s.prepare(t, nil, s.Make("a"))
	f.retryEvery(pause)
	var tries atomic.Int32
	f.React("patch", s.resource(), func(q apiserver.Request) error {
		if q.Subresource != "status" {
			return nil
		}
		tries.Add(1)
		return s.Refused(http.StatusUnprocessableEntity)
	})
	begun := time.Now()
	f.run(options())
	f.Eventually(func() error {
		if got := tries.Load(); got < 10 {
			return fmt.Errorf("%d tries", got)
		}
		return nil
	})
	got := tries.Load()
	if took := time.Since(begun); time.Duration(got) > took/pause+5 {
		t.Errorf("%d tries in %v with a pause of %v", got, took, pause)
	}
	if o := f.Get("a"); !s.IsMarked(o) {
		t.Error("unmarked, though the snapshot exists")
	}
}

// crashAt runs the controller until it fails at a failpoint, and ends it.
func (f *Fixture[T]) crashAt(point string) {
	f.t.Helper()
	var err error
	if f.Env.Failpoints, err = failpoint.Parse(f.suite.Traits.Failpoints + "/" + point + "=error"); err != nil {
		f.t.Fatal(err)
	}
	f.retryEvery(time.Hour) // a dead process does not retry
	controller := f.suite.New(f.Env, options())
	stop := f.Run(f.Env, controller)
	f.Eventually(func() error {
		if controller.Failures("a") == 0 {
			return fmt.Errorf("%s was not passed", point)
		}
		return nil
	})
	stop()
}

func (s *Suite[T]) crashDuringACreation(t *testing.T) {
	for _, point := range []string{"marked", "called", "status"} {
		t.Run(point+", kept", func(t *testing.T) {
			f := s.crashed(t, point, s.Make("a"))
			f.restart()
			if v := s.View(f.Done("a")); v.Handle != s.Taken("a").ID {
				t.Errorf("the content has the snapshot %s", v.Handle)
			}
			f.AtDriver(1)
		})
		for policy, remaining := range map[snapshotv1.DeletionPolicy]int{
			snapshotv1.VolumeSnapshotContentDelete: 0, snapshotv1.VolumeSnapshotContentRetain: 1,
		} {
			t.Run(fmt.Sprintf("%s, deleted meanwhile, policy %s", point, policy), func(t *testing.T) {
				f := s.crashed(t, point, s.Make("a", func(o T) { *s.Fields(o).Policy = policy }))
				f.DeleteByUser("a")
				f.restart()
				f.Vanishes("a")
				f.AtDriver(remaining)
			})
		}
	}
}

// crashed returns a cluster whose controller ended at a failpoint of a creation.
func (s *Suite[T]) crashed(t *testing.T, point string, object T) *Fixture[T] {
	t.Helper()
	driver := csidriver.New(Driver)
	driver.Snapshots.UnreadyAnswers = 1
	f := s.prepare(t, driver, object)
	f.crashAt(point)
	if !s.IsMarked(f.Get("a")) {
		t.Fatal("no mark says that the driver was called")
	}
	return f
}

func (s *Suite[T]) crashDuringADeletion(t *testing.T) {
	for _, point := range []string{"deleted", "cleared"} {
		t.Run(point, func(t *testing.T) {
			driver := csidriver.New(Driver)
			f := s.prepare(t, driver, s.Make("a", s.Recorded(s.Add(driver, "old"), true)))
			f.DeleteByUser("a")
			f.crashAt(point)
			f.stays("a")
			f.restart()
			f.Vanishes("a")
			f.AtDriver(0)
		})
	}
}

// staleCacheCreatesNothing: for a content that only a cache shows, the driver would create
// a snapshot that no content records.
func (s *Suite[T]) staleCacheCreatesNothing(t *testing.T) {
	rows := map[string]func(T){"being created": s.Marked, "new": func(T) {}}
	if !s.Traits.Inspected {
		rows["not ready"] = s.Recorded(s.Taken("a"), false)
	}
	for name, shown := range rows {
		t.Run(name, func(t *testing.T) {
			f := s.prepare(t, nil, s.Make("a", shown))
			controller := s.New(f.Env, options())
			f.Start()
			if err := f.Env.WaitServed(f.Context(), s.Traits.Group.Group, s.Traits.Group.Version, s.Traits.Resources...); err != nil {
				t.Fatal(err)
			}
			stale, gone := f.Get("a"), f.Get("a")
			s.Unfinalized(gone)
			f.Put(gone)
			f.Delete(gone)
			if _, err := controller.Do(f.Context(), stale); !errors.Is(err, cluster.ErrGone) {
				t.Errorf("got %v; want that the content is gone", err)
			}
			f.calledNever()
		})
	}
}
