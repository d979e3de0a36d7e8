package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// What a driver says of work that the end of the call's time interrupted is
// no final answer: the work may be done, or half done.
func TestCall_afterItsTimeHasNoFinalAnswer(t *testing.T) {
	for name, said := range map[string]error{
		"a final code":  status.Error(codes.Internal, "mkfs was killed"),
		"a plain error": errors.New("mkfs was killed"),
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(Options{Driver: "d"})
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := call(ctx, client, "CreateVolume", &csi.CreateVolumeRequest{Name: "v"},
				func(ctx context.Context, _ *csi.CreateVolumeRequest, _ ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
					<-ctx.Done()
					return nil, said
				})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "mkfs was killed") {
				t.Errorf("the call ends with %v", err)
			}
			if got := claim.Classify(claim.CallCreate, err); got != claim.OutcomeUncertain {
				t.Errorf("its outcome is %v", got)
			}
		})
	}
}

func TestCall_keepsAnAnswerInTime(t *testing.T) {
	ctx := context.Background()
	if err := status.Error(codes.Internal, "no"); !errors.Is(ended(ctx, err), err) {
		t.Errorf("it became %v", ended(ctx, err))
	}
	expired, cancel := context.WithCancel(ctx)
	cancel()
	if err := ended(expired, nil); err != nil {
		t.Errorf("success became %v", err)
	}
	if err := status.Error(codes.Canceled, "stopped"); !errors.Is(ended(expired, err), err) {
		t.Errorf("it became %v", ended(expired, err))
	}
}

func TestCapabilities_ofAConnectionThatEndedMeanwhileAreNotKept(t *testing.T) {
	client := newClient(Options{Driver: "d"})
	asked := 0
	ask := func() NodeCapabilities {
		t.Helper()
		can, err := cached(context.Background(), client, func(cache *capabilityCache) **NodeCapabilities { return &cache.node },
			func(context.Context) (NodeCapabilities, error) {
				if asked++; asked == 1 {
					client.forget() // the connection ends as the answer is read
					return NodeCapabilities{}, nil
				}
				return NodeCapabilities{Expand: true}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return can
	}
	ask()
	if can := ask(); !can.Expand || asked != 2 {
		t.Errorf("after %d questions the driver's new version can %+v", asked, can)
	}
	if ask(); asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// The codes of a driver are values of labels: there are as many as gRPC has.
func TestCall_aCodeThatGRPCDoesNotHave(t *testing.T) {
	var observed []string
	client := newClient(Options{Driver: "d", Observe: func(_, code string, _ time.Duration) { observed = append(observed, code) }})
	ctx, code := NoteCode(t.Context())
	_, err := call(ctx, client, "CreateVolume", &csi.CreateVolumeRequest{Name: "v"},
		func(context.Context, *csi.CreateVolumeRequest, ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
			return nil, status.Error(codes.Code(1234), "because")
		})
	if len(observed) != 1 || observed[0] != "Unknown" || code() != "Unknown" {
		t.Errorf("the code is %v and %s", observed, code())
	}
	if err == nil || err.Error() != "driver d: CreateVolume v: Unknown: code 1234: because" || !errors.Is(err, claim.ErrDriverFailed) {
		t.Errorf("the error is %v", err)
	}
}
