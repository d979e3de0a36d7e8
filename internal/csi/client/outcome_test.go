package client_test

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
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// answering is a connection on which every call ends with the same error.
type answering struct{ err error }

func (a answering) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return a.err }

func (a answering) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, a.err
}

// outcomes is one row of the error table: the outcome of one code after each group of
// calls.
type outcomes struct{ create, attach, expand, modify, snapshot, node claim.Outcome }

func everywhere(o claim.Outcome) outcomes { return outcomes{o, o, o, o, o, o} }

func errorTable() map[codes.Code]outcomes {
	const uncertain, final, infeasible, inUse = claim.OutcomeUncertain, claim.OutcomeFinal, claim.OutcomeInfeasible, claim.OutcomeInUse
	return map[codes.Code]outcomes{
		codes.Canceled:           everywhere(uncertain),
		codes.DeadlineExceeded:   everywhere(uncertain),
		codes.Unavailable:        everywhere(uncertain),
		codes.Aborted:            everywhere(uncertain),
		codes.ResourceExhausted:  {create: final, attach: uncertain, expand: uncertain, modify: uncertain, snapshot: uncertain, node: uncertain},
		codes.InvalidArgument:    {create: infeasible, attach: final, expand: infeasible, modify: infeasible, snapshot: final, node: final},
		codes.OutOfRange:         {create: final, attach: final, expand: infeasible, modify: final, snapshot: final, node: final},
		codes.NotFound:           {create: final, attach: final, expand: infeasible, modify: final, snapshot: final, node: final},
		codes.FailedPrecondition: {create: final, attach: final, expand: inUse, modify: final, snapshot: final, node: final},
		codes.AlreadyExists:      everywhere(final),
		codes.PermissionDenied:   everywhere(final),
		codes.Unauthenticated:    everywhere(final),
		codes.Unimplemented:      everywhere(final),
		codes.Internal:           everywhere(final),
		codes.Unknown:            everywhere(final),
		codes.DataLoss:           everywhere(final),
		codes.Code(99):           everywhere(final), // of a driver that invents one
	}
}

// calls makes one RPC of each group.
func calls(ctx context.Context, c *csiclient.Client) map[claim.Call]error {
	_, created := c.CreateVolume(ctx, &csi.CreateVolumeRequest{})
	_, attached := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{})
	_, expanded := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{})
	_, snapshotted := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{})
	return map[claim.Call]error{
		claim.CallCreate: created, claim.CallAttach: attached, claim.CallExpand: expanded, claim.CallSnapshot: snapshotted,
		claim.CallModify: c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{}),
		claim.CallNode:   c.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{}),
	}
}

func (o outcomes) of(call claim.Call) claim.Outcome {
	return map[claim.Call]claim.Outcome{
		claim.CallCreate: o.create, claim.CallAttach: o.attach, claim.CallExpand: o.expand,
		claim.CallModify: o.modify, claim.CallSnapshot: o.snapshot, claim.CallNode: o.node,
	}[call]
}

func TestClassify_everyCodeOfEveryCall(t *testing.T) {
	for code, want := range errorTable() {
		client := csiclient.New(answering{status.Error(code, "because")}, csiclient.Options{Driver: "d"})
		for call, err := range calls(t.Context(), client) {
			if err == nil {
				t.Errorf("%s: call group %d: no error", code, call)
			}
			if got := claim.Classify(call, err); got != want.of(call) {
				t.Errorf("%s after call group %d is %s, want %s", code, call, got, want.of(call))
			}
			if got := claim.Classify(call, fmt.Errorf("step: %w", err)); got != want.of(call) {
				t.Errorf("%s, wrapped, after call group %d is %s, want %s", code, call, got, want.of(call))
			}
			// A program cannot rely on the text of a flattened error.
			if got := claim.Classify(call, errors.New(err.Error())); got != claim.OutcomeUncertain {
				t.Errorf("%s, flattened, after call group %d is %s, want uncertain", code, call, got)
			}
		}
	}
}

func TestClassify_anErrorWithoutAnAnswerIsUncertain(t *testing.T) {
	for _, broken := range []error{errors.New("the pipe broke"), context.DeadlineExceeded, context.Canceled} {
		for call, err := range calls(t.Context(), csiclient.New(answering{broken}, csiclient.Options{Driver: "d"})) {
			if got := claim.Classify(call, err); got != claim.OutcomeUncertain {
				t.Errorf("%v after call group %d is %s, want uncertain", broken, call, got)
			}
		}
	}
}
