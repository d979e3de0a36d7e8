package attach

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// traceOf returns the traceparent of an attachment's trace: that of an earlier attempt, or of
// a new trace. It is written with the intent, so it costs no request.
func (c *Controller) traceOf(va *storagev1.VolumeAttachment) string {
	return cmp.Or(va.Annotations[TraceparentAnnotation], c.env.Tracer.Begin(attachOperation))
}

// finishTrace exports the root of the trace of an attachment, from its creation on. It links
// to the trace in which the volume was created.
func (c *Controller) finishTrace(va *storagev1.VolumeAttachment, written intent) {
	created := ""
	if pv, found := c.volumes.Get(volumeName(va)); found {
		created = pv.Annotations[claim.TraceparentAnnotation]
	}
	c.env.Tracer.Finish(written.trace, created, attachOperation, va.CreationTimestamp.Time, nil, attributes(va)...)
}

// attributes describe an attachment in spans.
func attributes(va *storagev1.VolumeAttachment) []attribute.KeyValue {
	return []attribute.KeyValue{
		tracing.Driver(va.Spec.Attacher), tracing.Node(va.Spec.NodeName), tracing.Volume(volumeName(va)),
		attribute.String("k8s.volumeattachment.name", va.Name),
	}
}
