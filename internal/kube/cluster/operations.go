package cluster

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// Operation is an unfinished operation, as an object shows it.
type Operation struct {
	Kind string
	// Since is when the object asked for it; the zero time if it does not show that.
	Since time.Time
	// Reason is why it is unfinished, "" for that of the last attempt.
	Reason string
}

// ShowOperations exports the unfinished operations of a queue. of returns those of a key,
// which waits or whose work is not done; it must not block. The kinds are all that it may
// return. Call it, like Queue, while the controllers are made.
func (e *Env) ShowOperations(queue *work.Queue, of func(key string) []Operation, kinds ...string) {
	if e.Registerer == nil {
		return
	}
	operations, err := metrics.OperationsOf(e.Registerer)
	if err != nil {
		e.Logger.Warn("the metrics of unfinished operations are missing", "kinds", kinds, "error", err)
		return
	}
	operations.Watch(e.Driver, kinds, func(report func(metrics.Operation)) {
		for _, key := range queue.Unfinished() {
			for _, operation := range of(key.Key) {
				since := operation.Since
				if since.IsZero() {
					since = key.Since
				}
				report(metrics.Operation{Kind: operation.Kind, Reason: cmp.Or(operation.Reason, reasonOf(key)), Since: since})
			}
		}
	})
}

// OperationOf returns the operations of a key of a store for ShowOperations. An object that
// is gone has none.
func OperationOf[T Object](store *Store[T], of func(T) []Operation) func(key string) []Operation {
	return func(key string) []Operation {
		object, found := store.Get(key)
		if !found {
			return nil
		}
		return of(object)
	}
}

// reasonOf returns the reason of a key whose work is not done.
func reasonOf(key work.Unfinished) string {
	if key.Running {
		return cmp.Or(key.Reason, metrics.ReasonRunning)
	}
	return cmp.Or(key.Reason, metrics.ReasonWaiting)
}

// attempt explains an attempt by the driver's last answer (work.Options).
func attempt(ctx context.Context) (attempt context.Context, reason func(err error) string) {
	attempt, code := client.NoteCode(ctx)
	return attempt, func(err error) string { return explain(err, code()) }
}

// explain returns the reason of an attempt that ended with err, and whose last call of the
// driver had such a code; "" for one that made no call and waits.
func explain(err error, code string) string {
	var answer *client.Error
	var rejected apierrors.APIStatus
	switch {
	case errors.As(err, &answer):
		return answer.Code
	case errors.As(err, &rejected):
		return metrics.ReasonKubernetes
	case client.Succeeded(code) && err == nil:
		return metrics.ReasonWaiting
	case code != "" && !client.Succeeded(code):
		return code
	case err != nil:
		return metrics.ReasonOther
	}
	return ""
}
