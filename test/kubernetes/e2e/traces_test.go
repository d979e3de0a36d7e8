package e2e

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// traces is an OTLP receiver outside the cluster, to which all pods of the driver export.
type traces struct {
	collector.UnimplementedTraceServiceServer

	address string

	mu  sync.Mutex
	all []exported
}

// exported is a span with the process that exported it.
type exported struct {
	*spans.Span
	service, host string
}

// receiveTraces serves OTLP at an address of the cluster's machine until the test ends.
func receiveTraces(t *testing.T, s *suite) *traces {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(s.cluster.Machine().String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	r, server := &traces{address: listener.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// values are those of the chart with which the driver exports.
func (r *traces) values() []string {
	return []string{"node.extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "node.extraEnv[0].value=http://" + r.address}
}

// Export implements the service.
func (r *traces) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		attributes := resource.GetResource().GetAttributes()
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.all = append(r.all, exported{span, attribute(attributes, "service.name"), attribute(attributes, "host.name")})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func attribute(attributes []*common.KeyValue, key string) string {
	for _, one := range attributes {
		if one.GetKey() == key {
			return one.GetValue().GetStringValue()
		}
	}
	return ""
}

// trace returns the spans of a trace with their depth below the root, in the order in which
// they began, a line each.
func (r *traces) trace(id []byte) (lines []string) {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(span exported) bool { return !bytes.Equal(span.GetTraceId(), id) })
	slices.SortStableFunc(all, func(a, b exported) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	var draw func(parent []byte, depth int)
	draw = func(parent []byte, depth int) {
		for _, span := range all {
			if bytes.Equal(span.GetParentSpanId(), parent) {
				lines = append(lines, strings.Repeat("  ", depth)+span.GetName())
				draw(span.GetSpanId(), depth+1)
			}
		}
	}
	draw(nil, 0)
	return lines
}

// roots are the IDs of traces whose root has a name and an attribute.
func (r *traces) roots(name, key, value string) (ids [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.all {
		if len(span.GetParentSpanId()) == 0 && span.GetName() == name && attribute(span.GetAttributes(), key) == value {
			ids = append(ids, span.GetTraceId())
		}
	}
	return ids
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

// oneTrace waits for exactly one trace with a root, which has these spans.
func (c *scene) oneTrace(root, key, value string, want ...string) {
	c.Helper()
	c.eventually(func() error {
		ids := c.traces.roots(root, key, value)
		if len(ids) != 1 {
			return fmt.Errorf("%d traces have the root %s with %s=%s", len(ids), root, key, value)
		}
		if lines := c.traces.trace(ids[0]); !within(want, lines) {
			return fmt.Errorf("the trace %s is\n%s\nwant\n%s", root, strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// isTraced: the life of a claim is one trace of the controllers and the driver, whose
// traceparent is in the PersistentVolume; what the kubelet calls for a pod's mount is one
// trace a call, down to the steps on the node. The deletion links to the creation.
func (c *scene) isTraced() {
	c.makeClaim(newClaim("data", "16Mi"))
	c.run(newPod("app", idle, withClaim("data")))
	claim, err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).Get(c.Context(), "data", metav1.GetOptions{})
	must(c)(claim, err)
	volume, err := c.api.CoreV1().PersistentVolumes().Get(c.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	must(c)(volume, err)
	c.oneTrace("provision", "k8s.persistentvolumeclaim.uid", string(claim.UID),
		"provision", "  attempt", "    csi.v1.Controller/CreateVolume", "      create", "    create PersistentVolume", "  bind")
	created := c.traces.roots("provision", "k8s.persistentvolumeclaim.uid", string(claim.UID))[0]
	if traceparent := volume.Annotations["holdfast.dev/traceparent"]; !strings.Contains(traceparent, fmt.Sprintf("-%x-", created)) {
		c.Errorf("the volume has the traceparent %q; its trace is %x", traceparent, created)
	}
	handle := volume.Spec.CSI.VolumeHandle
	c.oneTrace("csi.v1.Node/NodeStageVolume", "csi.subject", handle, "csi.v1.Node/NodeStageVolume", "  stage", "    format", "    mount")
	c.oneTrace("csi.v1.Node/NodePublishVolume", "csi.subject", handle, "csi.v1.Node/NodePublishVolume")
	c.deleteTraced(volume, created)
}

// deleteTraced deletes pod and claim, and finds the link from the deletion to the creation.
func (c *scene) deleteTraced(volume *corev1.PersistentVolume, created []byte) {
	if err := c.clear(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.oneTrace("delete", "k8s.persistentvolume.name", volume.Name, "delete", "  csi.v1.Controller/DeleteVolume")
	c.traces.mu.Lock()
	defer c.traces.mu.Unlock()
	for _, span := range c.traces.all {
		if span.GetName() == "delete" && attribute(span.GetAttributes(), "k8s.persistentvolume.name") == volume.Name {
			if links := span.GetLinks(); len(links) != 1 || !bytes.Equal(links[0].GetTraceId(), created) {
				c.Errorf("the deletion links to %v; want %x", links, created)
			}
		}
	}
}
