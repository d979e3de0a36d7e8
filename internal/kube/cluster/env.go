// Package cluster has what the Kubernetes controllers of a process share: the
// clients, one set of caches, the recorder of events, and which objects are
// theirs. No controller has its own cache or connection.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	Retry              work.Retry
	Workers            int           // per queue; 0 means work.DefaultWorkers
	Timeout            time.Duration // of one call of the driver; 0 means DefaultTimeout

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Failpoints *failpoint.Set

	mu     sync.Mutex
	queues map[string]*work.Queue
}

// Queue makes a queue with the process's number of workers, pauses, log and metrics. flow
// returns the flow of a key (work.Options).
func (e *Env) Queue(name string, flow func(key string) work.Flow) *work.Queue {
	queue := work.New(work.Options{
		Name: name, Workers: e.Workers, Flow: flow, Retry: e.Retry, Logger: e.Logger, Registerer: e.Registerer,
	})
	e.Track(name, queue)
	return queue
}

// Track makes a queue that was not made by Queue one of the environment's.
func (e *Env) Track(name string, queue *work.Queue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queues == nil {
		e.queues = map[string]*work.Queue{}
	}
	e.queues[name] = queue
}

// Hurry works at once on everything that waits after a failure of this kind,
// in all queues: the cause of its failures has ended.
func (e *Env) Hurry(over func(error) bool) {
	e.mu.Lock()
	queues := slices.Collect(maps.Values(e.queues))
	e.mu.Unlock()
	for _, queue := range queues {
		queue.Hurry(over)
	}
}

// Stuck names the queue that has been stuck for the longest time (work.Queue.Stuck), and
// that time; 0 if no queue is stuck.
func (e *Env) Stuck() (queue string, since time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, q := range e.queues {
		if stuck := q.Stuck(); stuck > since {
			queue, since = name, stuck
		}
	}
	return queue, since
}

// Call bounds a call of the driver.
func (e *Env) Call(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := e.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return context.WithTimeout(ctx, timeout)
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
