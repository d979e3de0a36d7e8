package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// answering is a connection on which every call ends with the same error.
type answering struct{ err error }

func (a answering) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return a.err }

func (a answering) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, a.err
}

// answer is the error that a client makes of a code.
func answer(code codes.Code) error {
	_, err := client.New(answering{status.Error(code, "because")}, client.Options{Driver: "d"}).
		CreateVolume(context.Background(), &csi.CreateVolumeRequest{Name: "v"})
	return fmt.Errorf("step: %w", err)
}

// row is what follows from one code: after a first call and after a repeated one,
// for a new volume, for a copy, and for a snapshot.
type row struct {
	first, firstSnapshot                           lifecycle.Outcome
	repeated, repeatedCopy, repeatedSnapshot       lifecycle.Outcome
	firstMovable, repeatedMovable, firstNotDesired lifecycle.Outcome
}

func table() map[codes.Code]row {
	const (
		retry, discard, later, reschedule, quarantine = lifecycle.Retry, lifecycle.Discard, lifecycle.RetryLater, lifecycle.Reschedule, lifecycle.Quarantine
	)
	open := row{}
	mute := row{first: discard, firstSnapshot: discard, firstMovable: discard, firstNotDesired: discard}
	taken := row{
		first: discard, firstSnapshot: discard, firstMovable: discard, firstNotDesired: discard,
		repeated: quarantine, repeatedCopy: quarantine, repeatedSnapshot: quarantine, repeatedMovable: quarantine,
	}
	absent := taken
	absent.repeated, absent.repeatedMovable = retry, retry
	rejected := row{discard, discard, discard, discard, discard, discard, discard, discard}
	invalid := row{later, discard, later, later, discard, later, later, discard}
	full := row{first: discard, firstSnapshot: retry, firstMovable: reschedule, firstNotDesired: discard}
	return map[codes.Code]row{
		codes.Canceled: open, codes.DeadlineExceeded: open, codes.Unavailable: open, codes.Aborted: open,
		codes.Internal: mute, codes.Unknown: mute, codes.PermissionDenied: mute, codes.Unauthenticated: mute,
		codes.FailedPrecondition: mute, codes.DataLoss: mute, codes.Code(99): mute,
		codes.AlreadyExists: taken, codes.NotFound: absent, codes.ResourceExhausted: full,
		codes.InvalidArgument: invalid, codes.OutOfRange: rejected, codes.Unimplemented: rejected,
	}
}

func TestAfterFailedCreate_everyCode(t *testing.T) {
	volume := lifecycle.Creation{Call: claim.CallCreate, Desired: true}
	snapshot := lifecycle.Creation{Call: claim.CallSnapshot, Copied: true, Desired: true}
	with := func(c lifecycle.Creation, change func(*lifecycle.Creation)) lifecycle.Creation {
		change(&c)
		return c
	}
	repeated := func(c *lifecycle.Creation) { c.Repeated = true }
	for code := codes.Code(1); code <= 17; code++ {
		if code == 17 {
			code = 99 // of a driver that invents one
		}
		want, known := table()[code]
		if !known {
			t.Fatalf("%s is not in the table", code)
		}
		for what, check := range map[string]struct {
			given lifecycle.Creation
			want  lifecycle.Outcome
		}{
			"first":              {volume, want.first},
			"first, snapshot":    {snapshot, want.firstSnapshot},
			"repeated":           {with(volume, repeated), want.repeated},
			"repeated, copy":     {with(volume, func(c *lifecycle.Creation) { c.Repeated, c.Copied = true, true }), want.repeatedCopy},
			"repeated, group":    {with(snapshot, repeated), want.repeatedSnapshot},
			"first, movable":     {with(volume, func(c *lifecycle.Creation) { c.Movable = true }), want.firstMovable},
			"repeated, movable":  {with(volume, func(c *lifecycle.Creation) { c.Movable, c.Repeated = true, true }), want.repeatedMovable},
			"first, not desired": {with(volume, func(c *lifecycle.Creation) { c.Desired, c.Movable = false, true }), want.firstNotDesired},
		} {
			if got := lifecycle.AfterFailedCreate(check.given, answer(code)); got != check.want {
				t.Errorf("%s, %s: %s, want %s", code, what, got, check.want)
			}
		}
	}
}

// TestAfterFailedCreate_aRejectionSpeaksForItsInstanceAlone: an instance of the driver
// that serves one node rejects a request that another one carried out.
func TestAfterFailedCreate_aRejectionSpeaksForItsInstanceAlone(t *testing.T) {
	for code := codes.Code(1); code <= 16; code++ {
		c := lifecycle.Creation{Call: claim.CallCreate, Desired: true, Repeated: true, Elsewhere: true}
		if got := lifecycle.AfterFailedCreate(c, answer(code)); !got.KeepsIntent() {
			t.Errorf("%s of another instance: %s", code, got)
		}
		c.Repeated = false
		if got, want := lifecycle.AfterFailedCreate(c, answer(code)), table()[code].first; got != want {
			t.Errorf("%s of the first call: %s, want %s", code, got, want)
		}
	}
}

func TestAfterFailedCreate_anErrorThatIsNoAnswerLeavesAllOpen(t *testing.T) {
	for _, c := range []lifecycle.Creation{{Call: claim.CallCreate, Desired: true}, {Call: claim.CallSnapshot, Repeated: true}} {
		if got := lifecycle.AfterFailedCreate(c, errors.New("the pipe broke")); got != lifecycle.Retry {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
