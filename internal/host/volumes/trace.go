package volumes

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// mountTrace is the trace of a pod whose volumes are not mounted yet. Attempts of one process
// are in one trace; after a restart the host begins another one.
type mountTrace struct {
	traceparent string
	begun       time.Time
}

// mountSpan begins the span of an attempt to mount a pod's volumes. An attempt that needed no
// step is not exported: the host repeats it for pods whose volumes are mounted.
func (m *Manager) mountSpan(ctx context.Context, pod *corev1.Pod) (context.Context, tracing.End) {
	tracer := m.options.Tracer
	if tracer == nil {
		return ctx, func(error) {}
	}
	known := m.mounting.get(string(pod.UID))
	if known.traceparent == "" {
		known = mountTrace{tracer.Begin("mount"), time.Now()}
	}
	attributes := tracing.Pod(pod.Namespace, pod.Name, string(pod.UID))
	var used atomic.Bool
	ctx, end := tracer.Attempt(context.WithValue(ctx, usedKey{}, &used), known.traceparent, "attempt", attributes...)
	return ctx, func(err error) {
		switch {
		case !used.Load():
		case err != nil:
			end(err)
			m.mounting.set(string(pod.UID), known)
		default:
			end(nil)
			m.forgetMount(pod.UID)
			tracer.Finish(known.traceparent, "", "mount", known.begun, nil, attributes...)
		}
	}
}

// forgetMount forgets the trace of a pod that is mounted or gone.
func (m *Manager) forgetMount(pod types.UID) { m.mounting.drop(string(pod)) }

type usedKey struct{}

// stepSpan begins the span of a step: in the trace of the pod's mount or, outside of one, in
// a trace of its own.
func (m *Manager) stepSpan(ctx context.Context, of subject, step Step) (context.Context, tracing.End) {
	if m.options.Tracer == nil {
		return ctx, func(error) {}
	}
	if used, ok := ctx.Value(usedKey{}).(*atomic.Bool); ok {
		used.Store(true)
	}
	attributes := of.attributes()
	if trace.SpanFromContext(ctx).IsRecording() {
		return tracing.Step(ctx, string(step), attributes...)
	}
	return m.options.Tracer.Linked(ctx, "", string(step), attributes...)
}

// attributes describe the subject of a step.
func (s subject) attributes() []attribute.KeyValue {
	attributes := []attribute.KeyValue{tracing.Driver(s.driver)}
	if s.handle != "" {
		attributes = append(attributes, tracing.VolumeID(s.handle))
	}
	for _, about := range s.about {
		namespace, name, _ := strings.Cut(about.Key, "/")
		switch about.Kind {
		case "PersistentVolumeClaim":
			attributes = append(attributes, tracing.Claim(namespace, name, about.UID)...)
		case "Pod":
			attributes = append(attributes, tracing.Pod(namespace, name, about.UID)...)
		}
	}
	return attributes
}
