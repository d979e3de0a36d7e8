package resize

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// traced begins the trace of an attempt, which links to that of the volume's creation. The
// status of a claim, which is the intent here, has no room for a trace of all attempts: they
// have the UID of the claim in common.
func (c *Controller) traced(ctx context.Context, s subject, operation string) (context.Context, tracing.End) {
	if c.env.Tracer == nil {
		return ctx, func(error) {}
	}
	attributes := append(tracing.Claim(s.claim.Namespace, s.claim.Name, string(s.claim.UID)),
		tracing.Driver(c.env.Driver), tracing.Volume(s.volume.Name))
	return c.env.Tracer.Linked(ctx, s.volume.Annotations[claim.TraceparentAnnotation], operation, attributes...)
}
