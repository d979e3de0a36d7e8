package content

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// traced begins the trace of a step that creates or deletes a snapshot. A step that is
// repeated has another one; they have the content in common.
func (c *Controller[T]) traced(ctx context.Context, object T) (context.Context, tracing.End) {
	name := ""
	switch c.next(object) {
	case StepCreate:
		name = c.Operation
	case StepDelete:
		name = c.Deletion
	}
	if c.env.Tracer == nil || name == "" {
		return ctx, func(error) {}
	}
	v := c.kind.View(object)
	return c.env.Tracer.Linked(ctx, "", name, tracing.Driver(c.env.Driver),
		attribute.String("k8s.namespace.name", v.User.Namespace), attribute.String("k8s.volumesnapshot.name", v.User.Name),
		attribute.String("k8s.volumesnapshotcontent.name", object.GetName()))
}
