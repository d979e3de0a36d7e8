package provision

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// A claim has one trace, from its intent until it is bound. The traceparent is in the
// template of the PersistentVolume, and so in the intent: a process after a crash and the next
// leader continue the trace. The object that is created keeps it, so that the traces of its
// attachments, growth and deletion link to it; that costs no request. Without an exporter
// there is no annotation.

// errNotNeeded is the status of the trace of a volume that was undone.
var errNotNeeded = errors.New("the claim is gone or does not need the volume")

// The names of spans. A root is exported when its operation ends.
const (
	rootSpan    = "provision"
	attemptSpan = "attempt"
	bindSpan    = "bind"
)

// beginTrace begins the trace of a claim.
func (c *Controller) beginTrace(template *corev1.PersistentVolume) {
	if traceparent := c.env.Tracer.Begin(rootSpan); traceparent != "" {
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, claim.TraceparentAnnotation, traceparent)
	}
}

func (i volumeIntent) traceparent() string { return i.Volume.Annotations[claim.TraceparentAnnotation] }

// attemptSpan begins the span of an attempt to create the volume of an intent, or to undo it.
func (c *Controller) attemptSpan(ctx context.Context, intent volumeIntent) (context.Context, tracing.End) {
	return c.env.Tracer.Attempt(ctx, intent.traceparent(), attemptSpan, intent.attributes()...)
}

// attributes describe the claim.
func (i volumeIntent) attributes() []attribute.KeyValue {
	reference := i.Volume.Spec.ClaimRef
	return append(tracing.Claim(reference.Namespace, reference.Name, string(reference.UID)),
		tracing.Volume(i.Volume.Name), tracing.Class(i.Volume.Spec.StorageClassName), tracing.Driver(i.Volume.Spec.CSI.Driver))
}

// endTrace exports the root of the trace of an intent that has ended.
func (c *Controller) endTrace(intent volumeIntent, err error) {
	c.env.Tracer.Finish(intent.traceparent(), "", rootSpan, intent.Since, err, intent.attributes()...)
}

// unboundTrace is the trace of a claim whose PersistentVolume exists. The zero value is none.
type unboundTrace struct {
	traceparent  string
	begun, saved time.Time
	attributes   []attribute.KeyValue
}

func (c *Controller) unboundTrace(intent volumeIntent) unboundTrace {
	if c.env.Tracer == nil {
		return unboundTrace{}
	}
	return unboundTrace{intent.traceparent(), intent.Since, time.Now(), intent.attributes()}
}

// forgetBound forgets a claim that is bound or gone. It exports the root of its trace, once,
// and the time from its PersistentVolume on, in which the controller-manager bound it.
func (c *Controller) forgetBound(uid types.UID) {
	t := c.progress.takeUnbound(uid)
	c.progress.forget(uid)
	if t.traceparent == "" {
		return
	}
	c.env.Tracer.Past(t.traceparent, bindSpan, t.saved)
	c.env.Tracer.Finish(t.traceparent, "", rootSpan, t.begun, nil, t.attributes...)
}

// deletionSpan begins the trace of a deletion, which links to that of the creation.
func (c *Controller) deletionSpan(ctx context.Context, pv *corev1.PersistentVolume) (context.Context, tracing.End) {
	if c.env.Tracer == nil {
		return ctx, func(error) {}
	}
	attributes := []attribute.KeyValue{tracing.Driver(c.env.Driver), tracing.Volume(pv.Name)}
	if of := pv.Spec.ClaimRef; of != nil {
		attributes = append(attributes, tracing.Claim(of.Namespace, of.Name, string(of.UID))...)
	}
	return c.env.Tracer.Linked(ctx, pv.Annotations[claim.TraceparentAnnotation], deleteOperation, attributes...)
}
