package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/internal/csi/message/messagetest"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// hostile is a driver that answers every call with the same bytes, or with an error.
type hostile struct {
	answer  []byte
	code    codes.Code
	text    string
	answers int
}

func (h *hostile) Invoke(_ context.Context, _ string, _, answer any, options ...grpc.CallOption) error {
	h.answers++
	for _, option := range options {
		if trailer, ok := option.(grpc.TrailerCallOption); ok {
			*trailer.TrailerAddr = metadata.Pairs(message.WarningTrailer, h.text)
		}
	}
	if h.code != codes.OK {
		return status.Error(h.code, h.text)
	}
	if err := proto.Unmarshal(h.answer, answer.(proto.Message)); err != nil {
		return status.Error(codes.Internal, "grpc: error unmarshalling request: "+err.Error())
	}
	return nil
}

func (h *hostile) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// questions are the calls that read an answer.
func questions(ctx context.Context, c *Client) []error {
	secrets := map[string]string{"token": "s3cr3t-0123456789"}
	_, one := c.PluginInfo(ctx)
	two := c.Probe(ctx)
	_, three := c.ControllerCapabilities(ctx)
	_, four := c.GroupCapabilities(ctx)
	_, five := c.NodeCapabilities(ctx)
	_, six := c.NodeInfo(ctx)
	_, seven := c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "a", Secrets: secrets})
	_, eight := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: "a", Secrets: secrets})
	_, nine := c.FindSnapshot(ctx, ControllerCapabilities{ListSnapshots: true}, "snap-1", secrets)
	_, ten := c.FindSnapshot(ctx, ControllerCapabilities{}, "snap-1", secrets)
	_, eleven := c.Operations(ctx)
	_, twelve := c.ListVolumes(ctx, &csi.ListVolumesRequest{})
	_, thirteen := c.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "a"})
	_, fourteen := c.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "a", Secrets: secrets})
	_, fifteen := c.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: "a"})
	return []error{one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen}
}

// FuzzAnswers is a driver that answers with any bytes, any code and any text: no call
// panics or goes on without end, and an error keeps the driver's name.
func FuzzAnswers(f *testing.F) {
	seeds := []proto.Message{
		&csi.ListSnapshotsResponse{NextToken: "2", Entries: []*csi.ListSnapshotsResponse_Entry{{Snapshot: &csi.Snapshot{SnapshotId: "snap-1", SizeBytes: -1}}}},
		&csi.GetPluginInfoResponse{Name: "d.example", VendorVersion: "1", Manifest: map[string]string{"a": "b"}},
		&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "v", CapacityBytes: -1}},
		&csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: 1}}}, {}}},
	}
	for _, seed := range seeds {
		wire, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, uint8(0), "")
	}
	for _, request := range messagetest.Filled(f, "x") {
		if wire, err := proto.Marshal(request.Message); err == nil {
			f.Add(wire, uint8(0), "a warning")
		}
	}
	for code := range uint8(18) {
		f.Add([]byte(nil), code, "the disk \x00 s3cr3t-0123456789 is full\n")
	}
	f.Fuzz(func(t *testing.T, answer []byte, code uint8, text string) {
		driver := &hostile{answer: answer, code: codes.Code(code), text: text}
		fuzztest.Cost{}.Within(t, len(answer)+len(text), func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			c := New(driver, Options{Driver: "d.example"})
			for i, err := range questions(ctx, c) {
				if err != nil && err.Error() == "" {
					t.Errorf("question %d: an error without a text", i)
				}
			}
			if ctx.Err() != nil {
				t.Errorf("the driver was asked %d times", driver.answers)
			}
		})
	})
}

// endless is a driver whose listing has no end: each page names another next one.
type endless struct {
	hostile
	page int
}

func (e *endless) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	e.page++
	if listed, ok := answer.(*csi.ListSnapshotsResponse); ok {
		listed.NextToken = fmt.Sprint(e.page % 2)
		return nil
	}
	return e.hostile.Invoke(ctx, method, request, answer, options...)
}

// A driver that never ends its listing must not keep its caller for ever.
func TestFindSnapshot_endsAListingWithoutAnEnd(t *testing.T) {
	driver := &endless{}
	_, err := New(driver, Options{Driver: "d.example"}).FindSnapshot(t.Context(), ControllerCapabilities{ListSnapshots: true}, "snap-1", nil)
	if err == nil || errors.Is(err, ErrNoSnapshot) {
		t.Errorf("after %d pages: %v; want an error that does not say that the snapshot is gone", driver.page, err)
	}
}
