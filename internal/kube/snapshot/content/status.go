package content

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// unchangedBy reports whether merging into an object's status would change nothing.
func unchangedBy(object cluster.Object, status map[string]any) bool {
	var has struct {
		Status map[string]any `json:"status"`
	}
	var merged map[string]any
	if reread(object, &has) != nil || reread(status, &merged) != nil {
		return false
	}
	for field, value := range merged {
		if !reflect.DeepEqual(has.Status[field], value) {
			return false
		}
	}
	return true
}

// reread converts a value as the API server does.
func reread(value, into any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Problem is a failure as a user sees it.
type Problem struct {
	Reason, Message string
	// Shown is the message that the status has already, "" for none.
	Shown string
}

// Show writes a problem into the status of a content that is still in a state,
// and into an event, once for as long as it stays the same.
func (w *Writer[T]) Show(ctx context.Context, object T, still func(T) bool, problem Problem, logger *slog.Logger) T {
	if problem.Message == problem.Shown {
		return object
	}
	w.Warn(object, problem.Reason, problem.Message)
	written, err := w.Status(ctx, object, still, map[string]any{
		"readyToUse": false,
		"error":      map[string]any{"time": metav1.Now(), "message": problem.Message},
	})
	if err != nil && !Transient(err) {
		logger.WarnContext(ctx, "a failure could not be shown", "kind", w.Kind, "name", object.GetName(), "error", err)
	}
	return written
}

// Warn writes an event about a content.
func (w *Writer[T]) Warn(object T, reason, message string) {
	w.Recorder.Event(object, corev1.EventTypeWarning, reason, message)
}

// Undeleted writes an event with the reason why a snapshot still exists, and returns the
// failure for the queue: a failed deletion is always retried.
func (w *Writer[T]) Undeleted(ctx context.Context, object T, reason, what string, failure error) error {
	if ctx.Err() != nil || Transient(failure) {
		return failure
	}
	w.Warn(object, reason, fmt.Sprintf("Failed to delete %s: %v", what, failure))
	return fmt.Errorf("%s %s: %w", w.Kind, object.GetName(), failure)
}
