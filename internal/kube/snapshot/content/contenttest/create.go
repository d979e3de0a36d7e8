package contenttest

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func (s *Suite[T]) resource() string { return s.Traits.Resources[0] }

func (s *Suite[T]) createsRecordsAndDeletes(t *testing.T) {
	f := s.Start(t, nil, s.Make("a"))
	v := s.View(f.Done("a"))
	taken := csidriver.SnapshotTime().Truncate(time.Second)
	if v.Handle != s.Taken("a").ID || !v.Taken.Truncate(time.Second).Equal(taken) {
		t.Errorf("recorded %s of %v", v.Handle, v.Taken)
	}
	var writes []string
	for _, write := range f.Writes() {
		writes = append(writes, strings.TrimSpace(write.Verb+" "+write.Resource+" "+write.Subresource))
	}
	want := []string{"patch " + s.resource(), "patch " + s.resource() + " status", "patch " + s.resource()}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Error(diff)
	}
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.AtDriver(0)
	if diff := cmp.Diff([]string{s.Create, s.Delete}, f.Driver.Calls()); diff != "" {
		t.Error(diff)
	}
}

// secret returns the changes of a content whose calls need the secret vault/s.
func (s *Suite[T]) secret() []func(T) {
	return []func(T){s.Annotated(s.Traits.Keys.SecretName, "s"), s.Annotated(s.Traits.Keys.SecretNamespace, "vault")}
}

func (s *Suite[T]) sendsParametersSecretsAndMetadata(t *testing.T) {
	type creation interface {
		GetName() string
		GetParameters() map[string]string
		GetSecrets() map[string]string
	}
	var got creation
	driver := csidriver.New(Driver)
	driver.Before = func(_ context.Context, rpc string, request any) error {
		if rpc == s.Create {
			got, _ = request.(creation)
		}
		return nil
	}
	object := s.Make("a", s.secret()...)
	f := s.prepare(t, driver, object, apiserver.Secret("vault", "s", map[string]string{"password": "x"}))
	with := options()
	with.ExtraMetadata, with.Naming = true, claim.Naming{Prefix: "short", UIDLength: 4}
	f.run(with)
	f.Done("a")
	want := map[string]string{
		"tier": "cold", claim.ReservedPrefix + s.Object + "/name": s.View(object).User.Name,
		claim.ReservedPrefix + s.Object + "/namespace": "ns", claim.ReservedPrefix + s.Object + "content/name": "a",
	}
	if diff := cmp.Diff(want, got.GetParameters()); diff != "" {
		t.Error(diff)
	}
	if got.GetName() != "short-uida" || got.GetSecrets()["password"] != "x" {
		t.Errorf("the request has the name %s and %d secrets", got.GetName(), len(got.GetSecrets()))
	}
	if _, cached, _ := s.Kind(f.Env).Class(ClassName); len(cached) != 1 {
		t.Error("the class in the cache was changed")
	}
}

func (s *Suite[T]) marksBeforeTheCall(t *testing.T) {
	driver := csidriver.New(Driver)
	f := s.prepare(t, driver, s.Make("a", s.Unfinalized))
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		o := f.Get("a")
		if rpc == s.Create && (!s.IsMarked(o) || !cmp.Equal(o.GetFinalizers(), []string{s.Traits.Keys.Finalizer})) {
			t.Errorf("requested with %+v", o)
		}
		return nil
	}
	f.run(options())
	f.Done("a")
}

func (s *Suite[T]) pollsReadinessApartFromErrors(t *testing.T) {
	driver := csidriver.New(Driver)
	driver.Snapshots.UnreadyAnswers = 3
	f := s.prepare(t, driver, s.Make("a"))
	f.retryEvery(time.Hour) // an error would end the test
	f.run(options())
	f.Done("a")
	if diff := cmp.Diff([]string{s.Create, s.Poll, s.Poll, s.Poll}, driver.Calls()); diff != "" {
		t.Error(diff)
	}
	if got := len(f.Writes()); got != 4 { // mark, status, unmark, ready
		t.Errorf("%d writes; an unchanged answer was written", got)
	}
}

func (s *Suite[T]) reportsAndRetriesErrors(t *testing.T) {
	for _, row := range []struct {
		code  codes.Code
		final bool
	}{
		{codes.Canceled, false}, {codes.DeadlineExceeded, false}, {codes.Unavailable, false}, {codes.Aborted, false},
		{codes.ResourceExhausted, false}, {codes.InvalidArgument, true}, {codes.OutOfRange, true}, {codes.NotFound, true},
		{codes.FailedPrecondition, true}, {codes.Internal, true}, {codes.Unknown, true}, {codes.AlreadyExists, true},
		{codes.PermissionDenied, true}, {codes.Unimplemented, true},
	} {
		t.Run(row.code.String(), func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New(Driver)
			driver.Before = func(_ context.Context, rpc string, _ any) error {
				if rpc == s.Create && driver.Count(rpc) < 4 {
					return csidriver.Fail(row.code, "refused for a test")
				}
				return nil
			}
			f := s.prepare(t, driver, s.Make("a"))
			f.retryEvery(100 * time.Millisecond)
			f.run(options())
			refused := f.Fails("refused for a test")
			f.Becomes("a", "failed and marked by its code", func(o T) bool { return refused(o) && s.IsMarked(o) != row.final })
			f.warns(s.Traits.ReasonCreation, "Failed to create "+s.Traits.Noun, row.code.String())
			if shown := s.View(f.Done("a")).Error; shown != "" {
				t.Errorf("the status keeps the error: %s", shown)
			}
			if got := len(f.Events()); got != 1 {
				t.Errorf("%d events for the same error: %q", got, f.Events())
			}
		})
	}
}

// rejectsASecondContentOfASnapshot: the names of two snapshots of a volume are equal, so
// that the driver answers the second call with the first snapshot.
func (s *Suite[T]) rejectsASecondContentOfASnapshot(t *testing.T) {
	same := func(object T) { s.Of(object, "vol") }
	f := s.prepare(t, nil)
	short := options()
	short.Naming.UIDLength = 3
	f.run(short)
	f.Add(s.Make("a", same))
	f.Done("a")
	f.Add(s.Make("b", same))
	f.Becomes("b", "rejected", f.Fails("which is the snapshot of content \"a\""))
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.Done("b")
}

// reservesASnapshotWhoseRecordingIsUnknown: the API server records the snapshot of a
// content, and neither its answer nor the change arrives. A second content whose call
// is answered with the same snapshot must not record it.
func (s *Suite[T]) reservesASnapshotWhoseRecordingIsUnknown(t *testing.T) {
	content := func(name string) T { return s.Make(name, func(o T) { s.Of(o, "vol") }, s.Classed("of-"+name)) }
	f := s.prepare(t, nil, content("a"), content("b"))
	f.retryEvery(20 * time.Millisecond)
	var cut atomic.Bool
	unavailable := func(q apiserver.Request) error {
		if cut.Load() && q.Process != "" {
			return apierrors.NewServiceUnavailable("for a test")
		}
		return nil
	}
	for _, verb := range []string{"get", "list", "watch"} {
		f.React(verb, s.resource(), unavailable)
	}
	records := func(q apiserver.Request) bool {
		return q.Subresource == "status" && q.Name == "a" && bytes.Contains(q.Body, []byte(s.Traits.HandleField))
	}
	f.React("patch", s.resource(), func(q apiserver.Request) error {
		if records(q) && cut.CompareAndSwap(false, true) {
			f.BreakWatches()
		}
		return nil
	})
	f.LoseAnswers("patch", s.resource(), func(q apiserver.Request) error {
		if records(q) {
			return apierrors.NewTimeoutError("for a test", 0)
		}
		return nil
	})
	short := options()
	short.Naming.UIDLength = 3
	f.run(short)
	f.Becomes("a", "without its class", f.Fails("of-a"))
	f.Becomes("b", "without its class", f.Fails("of-b"))
	f.Add(s.Class("of-a", Driver, nil))
	recorded := s.View(f.Becomes("a", "recorded", func(o T) bool { return s.View(o).Handle != "" })).Handle
	f.Add(s.Class("of-b", Driver, nil))
	f.Happens(s.Traits.ReasonCreation, " b:", recorded, "which another content records now")
	cut.Store(false)
	f.Done("a")
	f.Becomes("b", "rejected", f.Fails("which is the snapshot of content \"a\""))
}

func (s *Suite[T]) awaitsMissingObjects(t *testing.T) {
	keys := s.Traits.Keys
	f := s.Start(t, nil,
		s.Make("secretless", s.secret()...),
		s.Make("half", s.Annotated(keys.SecretName, "s")),
		s.Make("classless", s.Classless),
		s.Make("lost", s.Classed("elsewhere")),
		s.Make("unbound", s.Unbound),
	)
	f.Becomes("secretless", "failed", f.Fails("vault/s"))
	f.Becomes("half", "failed", f.Fails(keys.SecretNamespace))
	f.Becomes("classless", "failed", f.Fails("no "+s.Traits.ClassKind))
	f.Becomes("lost", "failed", f.Fails(s.Traits.ClassKind+` "elsewhere" does not exist`))
	f.Becomes("unbound", "failed", f.Fails("no uid"))
	f.calledNever()
	f.Add(apiserver.Secret("vault", "s", nil), s.Class("elsewhere", Driver, nil))
	f.Done("secretless")
	f.Done("lost")
}

func (s *Suite[T]) ignoresOtherDrivers(t *testing.T) {
	const other = "other.example.org"
	f := s.Start(t, nil, s.Class("other", other, nil),
		s.Make("foreign-class", s.Classed("other")),
		s.Make("foreign", func(o T) { *s.Fields(o).Driver = other }),
		s.Make("empty", func(o T) { s.Of(o) }),
		s.Make("own"))
	f.Done("own")
	for _, name := range []string{"foreign", "foreign-class", "empty"} {
		if v := s.View(f.Get(name)); v.Handle != "" || v.Error != "" || len(v.Meta.Annotations) > 0 {
			t.Errorf("%s was touched: %+v", name, v)
		}
	}
}

func (s *Suite[T]) reportsAMissingCapability(t *testing.T) {
	for name, lacking := range s.Lacking {
		t.Run(name, func(t *testing.T) {
			driver := csidriver.New(Driver)
			lacking(driver)
			f := s.Start(t, driver, s.Make("a"))
			if o := f.Becomes("a", "failed", f.Fails(s.Capability)); s.IsMarked(o) {
				t.Error("marked, though the driver cannot be called")
			}
			f.DeleteByUser("a")
			f.Vanishes("a")
		})
	}
}

func (s *Suite[T]) servesCRDsInstalledLater(t *testing.T) {
	f := s.prepare(t, nil)
	f.Unserve(s.Traits.Group.Group, true)
	f.Env.Set.PollServed(10 * time.Millisecond)
	f.run(options())
	f.Add(s.Make("a"))
	time.Sleep(50 * time.Millisecond)
	f.Unserve(s.Traits.Group.Group, false)
	f.Done("a")
}

func (s *Suite[T]) pollsAnAbsentSnapshot(t *testing.T) {
	late := s.Add(csidriver.New(Driver), "late") // as the driver will name it
	f := s.Start(t, nil, s.Static("a", late))
	f.Becomes("a", "failed", f.Fails(s.Absent))
	f.warns(s.Traits.ReasonCheck, "Failed to check and update "+s.Traits.Noun+" content", late.ID)
	s.Add(f.Driver, "late")
	if shown := s.View(f.Done("a")).Error; shown != "" {
		t.Errorf("the status keeps the error: %s", shown)
	}
}

func (s *Suite[T]) inspectsWithTheClassSecret(t *testing.T) {
	var secrets map[string]string
	driver := csidriver.New(Driver)
	driver.Before = func(_ context.Context, rpc string, request any) error {
		if with, ok := request.(interface{ GetSecrets() map[string]string }); ok && rpc == s.Inspect {
			secrets = with.GetSecrets()
		}
		return nil
	}
	class := s.Class("inspecting", Driver, map[string]string{
		claim.ReservedPrefix + s.InspectSecret + "-name":      "for-${" + s.Object + ".name}",
		claim.ReservedPrefix + s.InspectSecret + "-namespace": "vault",
	})
	object := s.Static("a", s.Add(driver, "old"), s.Classed("inspecting"))
	name := "for-" + s.View(object).User.Name
	f := s.Start(t, driver, []runtime.Object{class, object}...)
	f.Becomes("a", "failed", f.Fails("vault/"+name))
	f.Add(apiserver.Secret("vault", name, map[string]string{"k": "v"}))
	f.Done("a")
	if secrets["k"] != "v" {
		t.Error("inspected without the secret")
	}
}
