package contenttest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// showsUnfinishedOperations expects them in the metrics by the code of their last failure.
func (s *Suite[T]) showsUnfinishedOperations(t *testing.T) {
	driver := csidriver.New(Driver)
	var healthy atomic.Bool
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if !healthy.Load() && (rpc == s.Create || rpc == s.Delete) {
			return csidriver.Fail(codes.Unavailable, "away")
		}
		return nil
	}
	f := s.prepare(t, driver, s.Make("a"))
	f.run(options())
	creation, deletion := s.Traits.Operation, "delete_"+s.Traits.Operation
	f.Unfinished(f.Env, creation, "Unavailable", 1)
	f.Unfinished(f.Env, deletion, "Unavailable", 0)
	healthy.Store(true)
	f.Done("a")
	f.Unfinished(f.Env, creation, "Unavailable", 0)
	healthy.Store(false)
	f.DeleteByUser("a")
	f.Unfinished(f.Env, deletion, "Unavailable", 1)
	healthy.Store(true)
	f.Eventually(func() error {
		if left := s.Left(driver); len(left) > 0 {
			return errors.New("it still exists")
		}
		return nil
	})
	f.Unfinished(f.Env, deletion, "Unavailable", 0)
}
