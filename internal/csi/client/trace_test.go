package client

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
)

func TestCanonical(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.OK: "OK", codes.Canceled: "CANCELLED", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.Internal: "INTERNAL", codes.DataLoss: "DATA_LOSS",
	} {
		if got := canonical(code.String()); got != want {
			t.Errorf("%v is %s, want %s", code, got, want)
		}
	}
}

// TestTraced_aCallOfAnOperation: a call that polls, outside of an operation, has no span.
func TestTraced_aCallOfAnOperation(t *testing.T) {
	spans := tracingtest.New()
	client := New(NewInProcess(nil), Options{Driver: "d.example"}) // without services
	_ = client.Probe(t.Context())
	ctx, end := spans.Tracer(t).Attempt(t.Context(), "", "attempt")
	_ = client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "vol-1", Secrets: map[string]string{"password": "hunter2"}})
	end(nil)
	if got, want := spans.Tree(), []string{"attempt", "  csi.v1.Controller/DeleteVolume !"}; !slices.Equal(got, want) {
		t.Fatalf("the spans are %q, want %q", got, want)
	}
	call := spans.All()[0]
	var said []string
	for _, attribute := range call.Attributes {
		said = append(said, string(attribute.Key)+"="+attribute.Value.AsString())
	}
	want := []string{
		"rpc.system.name=grpc", "rpc.method=csi.v1.Controller/DeleteVolume", "csi.driver.name=d.example", "csi.subject=vol-1",
		"rpc.response.status_code=UNIMPLEMENTED",
	}
	if call.SpanKind != trace.SpanKindClient || !slices.Equal(said, want) {
		t.Errorf("the call has kind %v and the attributes %q, want %q", call.SpanKind, said, want)
	}
}
