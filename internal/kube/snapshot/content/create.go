package content

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// create asks the driver for a content's snapshot: for the first time, again
// after an answer without a definite outcome, or to learn whether a single
// snapshot is ready (CSI specifies the same call for all three). Whether to ask is
// decided on the state in the API server: for a content that only a stale cache
// shows, the driver would take a snapshot that no content knows.
func (c *Controller[T]) create(ctx context.Context, object T) (T, error) {
	request, err := c.frozen(object)
	if err == nil {
		err = c.kind.Able(ctx)
	}
	var secrets map[string]string
	if err == nil {
		secrets, err = Secret(ctx, c.env, c.Keys, object.GetAnnotations())
	}
	if err != nil {
		return c.failed(ctx, object, err)
	}
	repeated := true
	if c.next(object) == StepPoll {
		object, err = c.writer.Recheck(ctx, object, c.is(StepPoll))
	} else {
		object, repeated, err = c.writer.Mark(ctx, object, request, c.is(StepCreate))
	}
	if err != nil {
		return object, err
	}
	// Another process may have marked the content, with another request.
	if request, err = c.frozen(object); err != nil {
		return c.failed(ctx, object, err)
	}
	if err := c.hit("marked"); err != nil {
		return object, err
	}
	answer, err := c.callCreate(ctx, object, request, secrets)
	if fail := c.hit("called"); fail != nil {
		return object, fail
	}
	if err == nil {
		err = c.checkNew(object, answer.Status)
	}
	if err != nil {
		return c.rejected(ctx, object, repeated, err)
	}
	object, err = c.record(ctx, object, c.is(c.next(object)), answer)
	if err != nil {
		return object, err
	}
	if err := c.hit("status"); err != nil {
		return object, err
	}
	return c.writer.Unmark(ctx, object)
}

func (c *Controller[T]) callCreate(
	ctx context.Context, object T, request Request, secrets map[string]string,
) (Answer, error) {
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	return c.kind.Create(bounded, object, request, secrets)
}

// frozen returns the request that the driver was given before, or else the one of
// the class and the flags.
func (c *Controller[T]) frozen(object T) (Request, error) {
	v := c.kind.View(object)
	if c.marked(v) || v.Handle != "" {
		if request, ok, err := Frozen(v.Meta.Annotations); ok {
			return request, err
		}
	}
	if v.Class == nil {
		return Request{}, fmt.Errorf("it names no %s", c.ClassKind)
	}
	class, err := c.class(v)
	if err != nil {
		return Request{}, err
	}
	name, err := c.Name(c.options.Naming, v.UID)
	if err != nil {
		return Request{}, err
	}
	if c.options.ExtraMetadata {
		maps.Copy(class.Parameters, c.Metadata(v.User))
	}
	return Request{Name: name, Parameters: class.Parameters}, nil
}

// rejected records a failed call. If no snapshot can exist the mark is removed,
// and the content may be deleted; else the mark stays, and the same call is
// repeated.
func (c *Controller[T]) rejected(ctx context.Context, object T, repeated bool, failure error) (T, error) {
	if ctx.Err() != nil {
		return object, failure // the process ends: no fault of the driver
	}
	outcome := lifecycle.AfterFailedCreate(lifecycle.Creation{
		Call: claim.CallSnapshot, Copied: true, Repeated: repeated, Elsewhere: c.owner.hasTakenOver(object),
		Desired: object.GetDeletionTimestamp() == nil,
	}, failure)
	if c.kind.View(object).Handle == "" && outcome.KeepsIntent() {
		return c.failed(ctx, object, Kept(c.Keys, c.Noun, outcome, failure))
	}
	object, err := c.writer.Unmark(ctx, object)
	if err != nil {
		return object, errors.Join(failure, err)
	}
	return c.failed(ctx, object, failure)
}

// failed reports to the user why a content is not ready, and returns the failure for the
// queue. While no snapshot exists, the event is that of a failed creation.
func (c *Controller[T]) failed(ctx context.Context, object T, failure error) (T, error) {
	if ctx.Err() != nil || Transient(failure) {
		return object, failure
	}
	v := c.kind.View(object)
	problem := Problem{Reason: c.ReasonCheck, Message: fmt.Sprintf("Failed to check and update %s content: %v", c.Noun, failure), Shown: v.Error}
	if v.Handle == "" && !v.Static {
		problem.Reason, problem.Message = c.ReasonCreation, fmt.Sprintf("Failed to create %s: %v", c.Noun, failure)
	}
	failure = fmt.Errorf("%s %s: %w", c.Kind, object.GetName(), failure)
	return c.writer.Show(ctx, object, c.is(c.next(object)), problem, c.env.Logger), failure
}

// shows reports whether a failure is in the status.
func shows(v View, failure error) bool { return strings.Contains(v.Error, failure.Error()) }
