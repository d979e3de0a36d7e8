package contenttest

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// lost is the error of a driver whose answer to a creation is lost.
const lost = "the answer was lost"

// losing makes a driver lose its first answer to a creation and fail the next two calls
// with a code.
func (s *Suite[T]) losing(code codes.Code) *csidriver.Driver {
	driver := csidriver.New(Driver)
	driver.Snapshots.Strict, driver.Groups.Strict = true, true
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if n := driver.Count(rpc); rpc == s.Create && (n == 2 || n == 3) {
			return csidriver.Fail(code, "configured to fail")
		}
		return nil
	}
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == s.Create && driver.Count(rpc) == 1 {
			return csidriver.Fail(codes.DeadlineExceeded, lost)
		}
		return nil
	}
	return driver
}

// deletedWhileUncertain deletes content a after its answer was lost and change, and
// expects that the next process deletes the snapshot.
func (s *Suite[T]) deletedWhileUncertain(t *testing.T, driver *csidriver.Driver, object T, change func(*Fixture[T])) {
	t.Helper()
	f := s.prepare(t, driver, object)
	f.runOnce(options(), lost)
	change(f)
	f.DeleteByUser("a")
	f.restart()
	f.Vanishes("a")
	f.AtDriver(0)
}

// keepsTheMark: the snapshot is created, and the answer is lost. A code of unknown outcome
// keeps the mark and the finalizer.
func (s *Suite[T]) keepsTheMark(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Internal, codes.Unknown, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.DataLoss, codes.AlreadyExists, codes.NotFound,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s.deletedWhileUncertain(t, s.losing(code), s.Make("a"), func(*Fixture[T]) {})
		})
	}
}

// distrustsAnotherInstance: a node created the snapshot and lost the answer. A central
// process takes the content over, and its driver rejects the request, for example because
// the volume is not on its node.
func (s *Suite[T]) distrustsAnotherInstance(t *testing.T) {
	s.deletedWhileUncertain(t, s.losing(codes.InvalidArgument), s.Make("a", s.Labelled("n1")), func(*Fixture[T]) {})
}

// ignoresAnotherDriversClass: a class of the same name that is created again for another
// driver does not hide what this driver may have.
func (s *Suite[T]) ignoresAnotherDriversClass(t *testing.T) {
	s.deletedWhileUncertain(t, s.losing(codes.Internal), s.Make("a"), func(f *Fixture[T]) {
		f.Put(s.Class(ClassName, "other.example.org", nil))
	})
}

// freezesTheRequest: neither a class that is created again nor other flags change the
// request whose answer was lost.
func (s *Suite[T]) freezesTheRequest(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("the class is gone: %v", gone), func(t *testing.T) {
			driver := s.losing(codes.Internal)
			s.expectOneRequest(t, driver)
			f := s.prepare(t, driver, s.Make("a"))
			other := options()
			other.Naming = claim.Naming{Prefix: "other", UIDLength: 4}
			f.runOnce(other, lost)
			f.Put(s.Class(ClassName, Driver, map[string]string{"tier": "hot", "more": "x"}))
			if gone {
				f.Delete(s.Class(ClassName, Driver, nil))
			}
			f.restart()
			handle := s.View(f.Done("a")).Handle
			f.AtDriver(1)
			if left := s.Left(driver); left[0] != handle {
				t.Errorf("at the driver: %q; the content has %s", left, handle)
			}
		})
	}
}

// expectOneRequest fails the test if the requests of a driver's creations differ.
func (s *Suite[T]) expectOneRequest(t *testing.T, driver *csidriver.Driver) {
	var first proto.Message
	before := driver.Before
	driver.Before = func(ctx context.Context, rpc string, request any) error {
		if created, ok := request.(proto.Message); ok && rpc == s.Create {
			if first == nil {
				first = proto.Clone(created)
			}
			if !proto.Equal(first, created) {
				t.Errorf("requested %v, then %v", first, created)
			}
		}
		return before(ctx, rpc, request)
	}
}

// repeatsTheRequest: a strict driver would reject another request than the one whose
// outcome is unknown.
func (s *Suite[T]) repeatsTheRequest(t *testing.T) {
	driver := csidriver.New(Driver)
	f := s.prepare(t, driver, s.Make("a"))
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc != s.Create || driver.Count(rpc) >= 3 {
			return nil
		}
		o := f.Get("a")
		s.Annotated("from-elsewhere", "yes")(o)
		f.Put(o)
		return context.DeadlineExceeded
	}
	s.expectOneRequest(t, driver)
	f.run(options())
	f.Done("a")
}

// discardsARejectedRequest: if the driver rejects the request as invalid, an earlier call
// with the same request created nothing either.
func (s *Suite[T]) discardsARejectedRequest(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New(Driver)
			driver.Before = func(_ context.Context, rpc string, _ any) error {
				switch {
				case rpc != s.Create:
					return nil
				case driver.Count(rpc) == 1:
					return csidriver.Fail(codes.Unavailable, "starting")
				}
				return csidriver.Fail(code, "no such parameter")
			}
			f := s.Start(t, driver, s.Make("a"))
			f.Becomes("a", "failed", f.Fails("no such parameter"))
			f.DeleteByUser("a")
			f.Vanishes("a")
		})
	}
}

// InvalidAnswer expects that an answer to a creation leaves its outcome unknown: the
// content keeps its mark, and its deletion waits for a valid answer. lie makes the driver
// return the answer while lying is true.
func (s *Suite[T]) InvalidAnswer(t *testing.T, lie func(driver *csidriver.Driver, lying func() bool), shown string) {
	t.Helper()
	driver := csidriver.New(Driver)
	var honest atomic.Bool
	lie(driver, func() bool { return !honest.Load() })
	f := s.Start(t, driver, s.Make("a"))
	if o := f.Becomes("a", "failed", f.Fails(shown)); !s.IsMarked(o) || s.View(o).Handle != "" {
		t.Errorf("unmarked or recorded: %+v", o)
	}
	f.DeleteByUser("a")
	f.stays("a")
	honest.Store(true)
	f.Vanishes("a")
	f.AtDriver(0)
}

// ChangedAnswer expects that an answer with another ID than the recorded one is an error.
// lie makes the driver return the ID "another" in the answers for which lying is true.
func (s *Suite[T]) ChangedAnswer(t *testing.T, lie func(driver *csidriver.Driver, lying func() bool)) {
	t.Helper()
	driver := csidriver.New(Driver)
	driver.Snapshots.UnreadyAnswers = 2
	var answers atomic.Int32
	lie(driver, func() bool { return answers.Add(1) == 2 })
	f := s.Start(t, driver, s.Make("a"))
	f.warns(s.Traits.ReasonCheck, `"another"`)
	o, want := f.Done("a"), s.Taken("a")
	if v := s.View(o); v.Handle != want.ID || strings.Join(s.Members(o), " ") != strings.Join(want.Members, " ") {
		t.Errorf("recorded %s of %q", v.Handle, s.Members(o))
	}
}

func (s *Suite[T]) survivesAHungDriver(t *testing.T) {
	driver := csidriver.New(Driver)
	driver.Before = func(ctx context.Context, rpc string, request any) error {
		named, ok := request.(interface{ GetName() string })
		if ok && rpc == s.Create && strings.HasSuffix(named.GetName(), "slow") {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	f := s.prepare(t, driver, s.Make("slow"), s.Make("quick"))
	f.Env.Timeout = 100 * time.Millisecond
	f.run(options())
	f.Done("quick")
	if o := f.Becomes("slow", "failed", f.Fails("DeadlineExceeded")); !s.IsMarked(o) {
		t.Error("unmarked, though the snapshot may exist")
	}
}

func (s *Suite[T]) retriesTheCallOfADeadDriver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	driver := csidriver.New(Driver)
	serve := func() (stop func()) {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		return driver.Serve(listener)
	}
	kill := serve()
	died := make(chan struct{})
	driver.After = func(ctx context.Context, rpc string, _ any) error {
		if rpc == s.Create && driver.Count(rpc) == 1 {
			close(died)
			<-ctx.Done()
		}
		return nil
	}
	f := s.prepare(t, driver, s.Make("a"))
	connection, err := client.Dial(socket, client.Options{Driver: Driver})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	f.Env.CSI = connection
	f.run(options())
	<-died
	kill()
	if o := f.Becomes("a", "failed", f.Fails("Unavailable")); !s.IsMarked(o) {
		t.Error("unmarked, though the snapshot exists")
	}
	t.Cleanup(serve())
	f.Done("a")
	f.AtDriver(1)
}
