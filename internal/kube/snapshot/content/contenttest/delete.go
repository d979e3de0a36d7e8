package contenttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func (s *Suite[T]) deletedDuringTheCall(t *testing.T) {
	driver := csidriver.New(Driver)
	f := s.prepare(t, driver, s.Make("a"))
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == s.Create && driver.Count(rpc) == 1 {
			f.DeleteByUser("a")
			return csidriver.Fail(codes.DeadlineExceeded, "too slow")
		}
		return nil
	}
	f.run(options())
	f.Vanishes("a")
	f.AtDriver(0)
	if diff := cmp.Diff([]string{s.Create, s.Create, s.Delete}, driver.Calls()); diff != "" {
		t.Error(diff)
	}
}

func (s *Suite[T]) deletedAfterAFinalError(t *testing.T) {
	driver := csidriver.New(Driver)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == s.Create {
			return csidriver.Fail(codes.InvalidArgument, "never")
		}
		return nil
	}
	f := s.Start(t, driver, s.Make("a"))
	f.Becomes("a", "failed", f.Fails("never"))
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.deletedNever()
}

// deletedNever fails if the driver was asked for a deletion.
func (f *Fixture[T]) deletedNever() {
	f.t.Helper()
	if got := f.Driver.Count(f.suite.Delete); got != 0 {
		f.t.Errorf("%s was called %d times", f.suite.Delete, got)
	}
}

func (s *Suite[T]) retains(t *testing.T) {
	f := s.Start(t, nil, s.Make("a", s.Retain))
	f.Done("a")
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.AtDriver(1)
}

// sharedBy waits for the event that content b keeps the snapshot of a.
func (f *Fixture[T]) sharedBy() {
	f.t.Helper()
	f.warns(f.suite.Traits.ReasonDelete, fmt.Sprintf("%s \"b\" names the same %s", f.suite.Traits.Kind, f.suite.Traits.Noun))
}

func (s *Suite[T]) deletionWaitsForAnotherContent(t *testing.T) {
	driver := csidriver.New(Driver)
	of := s.Add(driver, "old")
	f := s.Start(t, driver, s.Static("a", of), s.Static("b", of, s.Retain))
	f.Done("a")
	f.Done("b")
	f.DeleteByUser("a")
	f.sharedBy()
	f.deletedNever()
	f.DeleteByUser("b")
	f.Vanishes("b")
	f.Vanishes("a")
	f.AtDriver(0)
}

// deletionWaitsForTheCache: the answer to an own write can show a deletion before the
// watch does. The cache may lack another content then, which was made before the deletion.
func (s *Suite[T]) deletionWaitsForTheCache(t *testing.T) {
	driver := csidriver.New(Driver)
	f := s.prepare(t, driver)
	var down atomic.Bool
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == s.Create && down.CompareAndSwap(false, true) {
			f.BreakWatches()
			f.Put(s.Static("b", s.Taken("a"), s.Retain))
			f.DeleteByUser("a")
		}
		return nil
	}
	f.React("watch", s.resource(), func(apiserver.Request) error {
		if down.Load() {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	})
	f.run(options())
	f.Add(s.Make("a"))
	f.Becomes("a", "recorded and deleted", func(o T) bool {
		return s.View(o).Handle != "" && !s.IsMarked(o) && o.GetDeletionTimestamp() != nil
	})
	f.Never(100*time.Millisecond, func() error {
		if n := driver.Count(s.Delete); n > 0 {
			return fmt.Errorf("%d calls to delete a snapshot that another content names", n)
		}
		return nil
	})
	down.Store(false)
	f.sharedBy()
}

// deletesBothContents: two contents that are both deleted with their snapshot do not
// wait for each other.
func (s *Suite[T]) deletesBothContents(t *testing.T) {
	driver := csidriver.New(Driver)
	of := s.Add(driver, "old")
	deleted := []func(T){s.Recorded(of, true), s.Deleted, s.UserGone}
	f := s.Start(t, driver, s.Static("a", of, deleted...), s.Static("b", of, deleted...))
	f.Vanishes("a")
	f.Vanishes("b")
	f.AtDriver(0)
}

func (s *Suite[T]) retriesTheDeletion(t *testing.T) {
	driver := csidriver.New(Driver)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == s.Delete && driver.Count(rpc) < 3 {
			return csidriver.Fail(codes.FailedPrecondition, "a clone still reads it")
		}
		return nil
	}
	f := s.Start(t, driver, s.Make("a"))
	f.Done("a")
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.AtDriver(0)
	f.warns(s.Traits.ReasonDelete, "a clone still reads it")
}

func (s *Suite[T]) readsThePolicyBeforeTheDeletion(t *testing.T) {
	driver := csidriver.New(Driver)
	deleted := []func(T){s.UserGone, s.Deleted, s.Recorded(s.Add(driver, "old"), true)}
	f := s.prepare(t, driver, s.Make("a", deleted...))
	var changed atomic.Bool
	f.React("get", s.resource(), func(apiserver.Request) error { // the controller's last read
		if changed.CompareAndSwap(false, true) {
			f.Put(s.Make("a", append(deleted, s.Retain)...))
		}
		return nil
	})
	f.run(options())
	f.Vanishes("a")
	f.AtDriver(1)
	if !changed.Load() {
		t.Error("the content was not read")
	}
}

func (s *Suite[T]) missingSecretBlocksTheDeletion(t *testing.T) {
	f := s.Start(t, nil, s.Make("a", s.secret()...), apiserver.Secret("vault", "s", nil))
	f.Done("a")
	f.Delete(apiserver.Secret("vault", "s", nil))
	f.DeleteByUser("a")
	f.warns(s.Traits.ReasonDelete, "vault/s", claim.DeleteWithoutSecretAnnotation)
	f.stays("a")
	f.deletedNever()
	object := f.Get("a")
	s.Annotated(claim.DeleteWithoutSecretAnnotation, "true")(object)
	f.Put(object)
	f.Vanishes("a")
	f.AtDriver(0)
}

func (s *Suite[T]) deletesAnUnboundContent(t *testing.T) {
	driver := csidriver.New(Driver)
	f := s.Start(t, driver, s.Static("a", s.Add(driver, "old"), s.Unbound))
	f.Done("a")
	f.Delete(f.Get("a"))
	f.Vanishes("a")
	f.AtDriver(0)
}
