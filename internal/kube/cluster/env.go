// Package cluster has what the Kubernetes controllers of a process share: the
// clients, one set of caches, the recorder of events, and which objects are
// theirs. No controller has its own cache or connection.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// DefaultTimeout bounds one call of the driver. The sidecars' 10 to 60 s made
// slow drivers repeat calls that they had almost finished.
const DefaultTimeout = 60 * time.Second

// Env is what every controller is given. It is not changed after the
// controllers were made.
type Env struct {
	Driver string // name of the CSI plugin
	Clients
	Set *Set
	CSI *client.Client
	// Recorder writes events on its own connection; it aggregates, and it
	// never blocks.
	Recorder record.EventRecorder
	Scope    Scope
	// DriverNode is the node_id of the driver that CSI calls (NodeGetInfo): which of
	// its instances it is. It is "" for one without a node service.
	DriverNode string
	// Namespace is where the process's own objects live, and Intents that of its
	// intents, whose ConfigMaps it may change.
	Namespace, Intents string
	// LabelPolicy labels new PersistentVolumes, with Scope.Labelled.
	LabelPolicy LabelPolicy
	Limits

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *tracing.Tracer // nil for no traces
	Failpoints *failpoint.Set

	queues *queues // of all environments that With returned
}

// Limits are how much a controller does at once, and how long a call of the driver may
// take. Zero values mean the defaults.
type Limits struct {
	Workers int // of each queue (work.Options)
	Retry   work.Retry
	Timeout time.Duration // of one call of the driver; 0 means DefaultTimeout
}

// Or returns the limits, with those of others in place of zero values.
func (l Limits) Or(others Limits) Limits {
	return Limits{
		Workers: cmp.Or(l.Workers, others.Workers),
		Retry:   work.Retry{Start: cmp.Or(l.Retry.Start, others.Retry.Start), Max: cmp.Or(l.Retry.Max, others.Retry.Max)},
		Timeout: cmp.Or(l.Timeout, others.Timeout),
	}
}

// LabelPolicy names a MutatingAdmissionPolicy and its binding that label the driver's
// PersistentVolumes in the writes that create and change them.
type LabelPolicy struct {
	Name string // "" means that there is none
	// Settle is the time from which on all API servers apply a policy that this process
	// has seen. 0 means a minute.
	Settle time.Duration
}

// queues are the queues of a process, by name.
type queues struct {
	mu     sync.Mutex
	byName map[string]*work.Queue
}

func (q *queues) all() map[string]*work.Queue {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.byName)
}

// With returns the environment of a controller with limits of its own; zero values mean
// those of e. Call it, like Queue and Track, while the controllers are made.
func (e *Env) With(limits Limits) *Env {
	if e.queues == nil {
		e.queues = &queues{}
	}
	own := *e
	own.Limits = limits.Or(e.Limits)
	return &own
}

// Queue makes a queue with the process's number of workers, pauses, log and metrics. flow
// returns the flow of a key (work.Options).
func (e *Env) Queue(name string, flow func(key string) work.Flow) *work.Queue {
	queue := work.New(work.Options{
		Name: name, Workers: e.Workers, Flow: flow, Retry: e.Retry, Attempt: attempt, Logger: e.Logger, Registerer: e.Registerer,
	})
	e.Track(name, queue)
	return queue
}

// Track makes a queue that was not made by Queue one of the environment's.
func (e *Env) Track(name string, queue *work.Queue) {
	if e.queues == nil {
		e.queues = &queues{}
	}
	e.queues.mu.Lock()
	defer e.queues.mu.Unlock()
	if e.queues.byName == nil {
		e.queues.byName = map[string]*work.Queue{}
	}
	e.queues.byName[name] = queue
}

// Hurry works at once on everything that waits after a failure of this kind,
// in all queues: the cause of its failures has ended.
func (e *Env) Hurry(over func(error) bool) {
	for _, queue := range e.queues.all() {
		queue.Hurry(over)
	}
}

// EndQueues ends the queues. It is for a process whose controllers were made and may not have
// run, such as a standby that ends.
func (e *Env) EndQueues() {
	for _, queue := range e.queues.all() {
		queue.End()
	}
}

// Stuck names the queue that has been stuck for the longest time (work.Queue.Stuck), and
// that time; 0 if no queue is stuck.
func (e *Env) Stuck() (queue string, since time.Duration) {
	for name, q := range e.queues.all() {
		if stuck := q.Stuck(); stuck > since {
			queue, since = name, stuck
		}
	}
	return queue, since
}

// Call bounds a call of the driver.
func (e *Env) Call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.CallTimeout())
}

// CallTimeout is how long a call of the driver may take.
func (e *Env) CallTimeout() time.Duration {
	if e.Timeout <= 0 {
		return DefaultTimeout
	}
	return e.Timeout
}

// Secret reads a secret's values, again for each call: they are for one call, and
// kept nowhere. No reference means no values. An absent secret is an error that
// apierrors.IsNotFound recognises.
func (e *Env) Secret(ctx context.Context, reference *corev1.SecretReference) (map[string]string, error) {
	if reference == nil || reference.Name == "" {
		return nil, nil
	}
	secret, err := e.Core.CoreV1().Secrets(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	values := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
}

// WaitServed returns when custom resources that the controller reads are
// served by the cluster and cached; ctx's error when it ends first.
func (e *Env) WaitServed(ctx context.Context, group, version string, resources ...string) error {
	return e.Set.WaitServed(ctx, schema.GroupVersion{Group: group, Version: version}, resources...)
}
