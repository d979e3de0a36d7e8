package host_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
)

// receiver is an OTLP receiver.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []received
}

// received is a span with the process that exported it.
type received struct {
	*spans.Span
	service string
}

// receive serves OTLP over gRPC, and points the processes that the test starts to it.
func receive(t *testing.T) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // milliseconds
	return r
}

// Export implements the service.
func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans = append(r.spans, received{span, value(resource.GetResource().GetAttributes(), "service.name")})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func value(attributes []*common.KeyValue, key string) string {
	for _, attribute := range attributes {
		if attribute.GetKey() == key {
			return attribute.GetValue().GetStringValue()
		}
	}
	return ""
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// tree draws the trace whose root has a name: a line "process span" for each span, indented
// below its parent, in the order in which they began. It is nil without that root.
func (r *receiver) tree(root string) (lines []string) {
	all := r.all()
	slices.SortStableFunc(all, func(a, b received) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	var draw func(of received, depth int)
	draw = func(of received, depth int) {
		lines = append(lines, strings.Repeat("  ", depth)+of.service+" "+of.GetName())
		for _, span := range all {
			if bytes.Equal(span.GetParentSpanId(), of.GetSpanId()) {
				draw(span, depth+1)
			}
		}
	}
	for _, span := range all {
		if len(span.GetParentSpanId()) == 0 && span.GetName() == root {
			draw(span, 0)
		}
	}
	return lines
}

const aTracedPod = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: traced}
provisioner: local.holdfast.dev
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: traced
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: traced}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// TestTraces_ofAClaimAndAMount: the host and its driver export them over OTLP. The mount of a
// pod is one trace of both, down to the driver's steps.
func TestTraces_ofAClaimAndAMount(t *testing.T) {
	traces := receive(t)
	m := newMachine(t)
	m.start()
	m.apply(aTracedPod)
	m.until("the pod runs", limitOfTest, func() bool {
		pod := get[*corev1.Pod](m, "pods", "default", "traced")
		return pod != nil && pod.Status.Phase == corev1.PodRunning
	})
	contains := func(root string, want ...string) {
		t.Helper()
		m.until(fmt.Sprintf("the trace %q has %q", root, want), limitOfTest, func() bool {
			return within(want, traces.tree(root))
		})
	}
	contains("create", "holdfast-host create", "  holdfast-host csi.v1.Controller/CreateVolume",
		"    holdfast-driver csi.v1.Controller/CreateVolume", "      holdfast-driver create")
	contains("mount", "holdfast-host mount", "  holdfast-host attempt",
		"    holdfast-host stage", "      holdfast-host csi.v1.Node/NodeStageVolume",
		"        holdfast-driver csi.v1.Node/NodeStageVolume", "          holdfast-driver stage",
		"            holdfast-driver device", "            holdfast-driver format", "            holdfast-driver mount",
		"    holdfast-host publish", "      holdfast-host csi.v1.Node/NodePublishVolume", "        holdfast-driver csi.v1.Node/NodePublishVolume")
	m.clear([]string{"traced"}, []string{"data"})
	contains("delete", "holdfast-host delete", "  holdfast-host csi.v1.Controller/DeleteVolume")
	for _, span := range traces.all() {
		if span.GetName() == "mount" && len(span.GetParentSpanId()) == 0 && value(span.GetAttributes(), "k8s.pod.name") != "traced" {
			t.Errorf("the mount has the attributes %v", span.GetAttributes())
		}
	}
}

// within reports whether the lines occur in this order.
func within(want, lines []string) bool {
	for _, line := range lines {
		if len(want) > 0 && line == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}
