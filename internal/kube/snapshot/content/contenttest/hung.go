package contenttest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// few is a number of workers that a test fills.
const few = 4

// runHung runs the controller with few workers and calls that may hang for the whole test.
func (f *Fixture[T]) runHung() {
	f.t.Helper()
	f.Env.Workers, f.Env.Timeout = few, time.Hour
	f.run(options())
}

// hung waits until an RPC hangs in each worker that it may have.
func (f *Fixture[T]) hung(rpc string) {
	f.t.Helper()
	f.Eventually(func() error {
		if n := f.Driver.Count(rpc); n < few {
			return fmt.Errorf("%d calls of %s hang", n, rpc)
		}
		return nil
	})
}

func (s *Suite[T]) survivesAHungClass(t *testing.T) {
	driver := csidriver.New(Driver)
	driver.Before = func(ctx context.Context, rpc string, request any) error {
		if named, ok := request.(interface{ GetName() string }); ok && rpc == s.Create && strings.Contains(named.GetName(), "slow") {
			<-ctx.Done()
		}
		return nil
	}
	f := s.prepare(t, driver, s.Class("slow", Driver, nil))
	for i := range 12 {
		f.Add(s.Make(fmt.Sprint("slow-", i), s.Classed("slow")))
	}
	f.runHung()
	f.hung(s.Create)
	f.Add(s.Make("quick"))
	f.Done("quick")
}

func (s *Suite[T]) survivesHungDeletions(t *testing.T) {
	driver := csidriver.New(Driver)
	driver.Before = func(ctx context.Context, rpc string, _ any) error {
		if rpc == s.Delete {
			<-ctx.Done()
		}
		return nil
	}
	f := s.prepare(t, driver)
	for i := range 12 {
		f.Add(s.Make(fmt.Sprint("leaving-", i)))
	}
	f.runHung()
	for i := range 12 {
		f.Done(fmt.Sprint("leaving-", i))
		f.DeleteByUser(fmt.Sprint("leaving-", i))
	}
	f.hung(s.Delete)
	f.Add(s.Make("quick"))
	f.Done("quick")
}
