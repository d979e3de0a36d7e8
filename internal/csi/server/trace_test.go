package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
)

func TestTracing_aSpanPerCallWithoutSecrets(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	i := &instance{engine: &engine{}, registry: prometheus.NewRegistry(), log: &record{}, socket: filepath.Join(t.TempDir(), "csi.sock")}
	o := options(Controller, memory{newPlain()}, i)
	o.Tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	i.run(t, o)
	_, err := i.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-1", Secrets: map[string]string{"password": secret}})
	wantCode(t, err, codes.OK)
	if err := i.end(); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 2 || ended[0].Name() != "delete" || ended[1].Name() != "csi.v1.Controller/DeleteVolume" {
		t.Fatalf("the spans are %v, want one for DeleteVolume with its step", ended)
	}
	if text := fmt.Sprint(ended[1].Attributes()); !strings.Contains(text, "csi.subject") || !strings.Contains(text, "vol-1") || !strings.Contains(text, "csi.driver.name") {
		t.Errorf("the span of the call has the attributes %s", text)
	}
	for _, span := range ended {
		if text := fmt.Sprint(span.Attributes(), span.Events(), span.Status()); strings.Contains(text, secret) {
			t.Errorf("the span has the secret: %s", text)
		}
	}
}

// TestTracing_continuesTheCallersTrace: the caller is another process, beyond a socket.
func TestTracing_continuesTheCallersTrace(t *testing.T) {
	spans := tracingtest.New()
	i := &instance{engine: &engine{}, registry: prometheus.NewRegistry(), log: &record{}, socket: filepath.Join(t.TempDir(), "csi.sock")}
	o := options(Controller, memory{newPlain()}, i)
	o.Tracing = spans.Provider(t)
	i.run(t, o)
	caller, err := client.Dial(i.socket, client.Options{Driver: "d"})
	if err != nil {
		t.Fatal(err)
	}
	tracer := spans.Tracer(t)
	ctx, end := tracer.Attempt(t.Context(), "", "attempt")
	if err := caller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "vol-1"}); err != nil {
		t.Error(err)
	}
	end(nil)
	if err := errors.Join(caller.Close(), i.end()); err != nil {
		t.Fatal(err)
	}
	const span = "csi.v1.Controller/DeleteVolume" // the client's, and the server's
	if got, want := spans.Tree(), []string{"attempt", "  " + span, "    " + span, "      delete"}; !slices.Equal(got, want) {
		t.Errorf("the tree is %q, want %q", got, want)
	}
}
