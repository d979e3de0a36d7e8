package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
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
	if len(ended) != 1 || ended[0].Name() != "csi.v1.Controller/DeleteVolume" {
		t.Fatalf("the spans are %v, want one for DeleteVolume", ended)
	}
	if text := fmt.Sprint(ended[0].Attributes(), ended[0].Events()); strings.Contains(text, secret) {
		t.Errorf("the span has the secret: %s", text)
	}
}
