package snapshot

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// losing makes a driver lose its first answer to CreateSnapshot and fail the next
// two calls with a code.
func losing(code codes.Code) *csidriver.Driver {
	driver := csidriver.New(driverName)
	driver.Snapshots.Strict = true
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if n := driver.Count(rpc); rpc == "CreateSnapshot" && (n == 2 || n == 3) {
			return csidriver.Fail(code, "configured to fail")
		}
		return nil
	}
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateSnapshot" && driver.Count(rpc) == 1 {
			return csidriver.Fail(codes.DeadlineExceeded, "the answer was lost")
		}
		return nil
	}
	return driver
}

// TestUncertain_keepsTheMarkAfterCodesOfUnknownOutcome: the snapshot is taken, and the
// answer is lost. A code of unknown outcome keeps the mark and the finalizer.
func TestUncertain_keepsTheMarkAfterCodesOfUnknownOutcome(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Internal, codes.Unknown, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.DataLoss, codes.AlreadyExists, codes.NotFound,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			driver := losing(code)
			f := prepare(t, driver, dynamic("a"))
			f.Env.Retry.Start, f.Env.Retry.Max = time.Hour, time.Hour // one try
			stop := f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
			f.becomes("a", "failed", fails("the answer was lost"))
			stop()
			f.deleteByUser("a")
			f.restart()
			f.vanishes("a")
			if left := driver.SnapshotsLeft(); left != nil {
				t.Errorf("still at the driver: %q", left)
			}
		})
	}
}

// TestUncertain_aRejectionByAnotherInstanceProvesNothing: a node took the snapshot and
// lost the answer. A central process takes the content over, and its driver rejects the
// request, for example because the volume is not on its node.
func TestUncertain_aRejectionByAnotherInstanceProvesNothing(t *testing.T) {
	driver := losing(codes.InvalidArgument)
	labelled := dynamic("a")
	labelled.Labels = map[string]string{claim.ManagedByLabel: "n1"}
	f := prepare(t, driver, labelled)
	f.Env.Retry.Start, f.Env.Retry.Max = time.Hour, time.Hour // one try
	stop := f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.becomes("a", "failed", fails("the answer was lost"))
	stop()
	f.deleteByUser("a")
	f.restart()
	f.vanishes("a")
	if left := driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

// TestUncertain_theRequestIsFrozen: neither a class that is created again nor other
// flags change the request whose answer was lost.
func TestUncertain_theRequestIsFrozen(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("the class is gone: %v", gone), func(t *testing.T) {
			driver := losing(codes.Internal)
			var requests []*csi.CreateSnapshotRequest
			before := driver.Before
			driver.Before = func(ctx context.Context, rpc string, request any) error {
				if create, ok := request.(*csi.CreateSnapshotRequest); ok {
					requests = append(requests, create)
				}
				return before(ctx, rpc, request)
			}
			f := prepare(t, driver, dynamic("a"))
			f.Env.Retry.Start, f.Env.Retry.Max = time.Hour, time.Hour
			stop := f.Run(f.Env, New(f.Env, Options{Poll: fastPoll(), Naming: claim.Naming{Prefix: "snap", UIDLength: 4}}))
			f.becomes("a", "failed", fails("the answer was lost"))
			stop()
			f.Put(class(map[string]string{"tier": "hot", "more": "x"}))
			if gone {
				f.Delete(class(nil))
			}
			f.restart()
			f.becomes("a", "ready", readyAndUnmarked)
			for _, request := range requests {
				if !proto.Equal(request, requests[0]) {
					t.Errorf("asked for %v, then for %v", requests[0], request)
				}
			}
			if left := driver.SnapshotsLeft(); len(left) != 1 || left[0] != handleOf(f.get("a")) {
				t.Errorf("at the driver: %q", left)
			}
		})
	}
}

// TestUncertain_anotherDriversClassChangesNothing: a class of the same name that is
// created again for another driver does not hide what this driver may have.
func TestUncertain_anotherDriversClassChangesNothing(t *testing.T) {
	driver := losing(codes.Internal)
	f := prepare(t, driver, dynamic("a"))
	f.Env.Retry.Start, f.Env.Retry.Max = time.Hour, time.Hour
	stop := f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.becomes("a", "failed", fails("the answer was lost"))
	stop()
	other := class(nil)
	other.Driver = "other.example.org"
	f.Put(other)
	f.deleteByUser("a")
	f.restart()
	f.vanishes("a")
	if left := driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

// TestUncertain_aRejectedRequestIsDiscarded: if the driver rejects the
// request as invalid, an earlier call with the same request created nothing either.
func TestUncertain_aRejectedRequestIsDiscarded(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New(driverName)
			driver.Before = func(_ context.Context, rpc string, _ any) error {
				if rpc != "CreateSnapshot" {
					return nil
				}
				if driver.Count(rpc) == 1 {
					return csidriver.Fail(codes.Unavailable, "starting")
				}
				return csidriver.Fail(code, "no such parameter")
			}
			f := start(t, driver, dynamic("a"))
			f.becomes("a", "failed", fails("no such parameter"))
			f.deleteByUser("a")
			f.vanishes("a")
		})
	}
}
