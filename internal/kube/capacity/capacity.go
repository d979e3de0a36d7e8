// Package capacity maintains CSIStorageCapacity objects: the capacity that a
// driver has for each of its StorageClasses in each topology segment, for the
// scheduler to read (KEP-1472). Name, labels and owner of the objects are those
// of external-provisioner, so that either can take over from the other.
//
// An object records the answer of GetCapacity. The controller calls GetCapacity
// once per poll interval, and soon after a volume was created or deleted. If the
// driver returns an error, or the process ends, the object stays as it is.
package capacity

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/topology"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	// DefaultPoll is the interval between two GetCapacity calls for a segment.
	DefaultPoll = time.Minute
	// DefaultWorkers is how many calls and writes run at once. It is low because
	// capacity is a hint and must not delay provisioning.
	DefaultWorkers = 4

	burst = 100 * time.Millisecond // classes and nodes change in bursts; one plan serves a burst
	gap   = time.Second            // between two GetCapacity for one question
	// grace is how long an object outlives its segment or class: while a node's
	// plugin restarts, the driver is not registered on that node.
	grace = 30 * time.Second
)

// Options of a Controller.
type Options struct {
	// Immediate makes objects for classes of immediate binding too.
	Immediate bool
	// Poll is DefaultPoll if zero.
	Poll time.Duration
	// Workers is DefaultWorkers if zero.
	Workers int
	// Owner returns the owner of the objects; nil for objects without one. It is
	// called again after another client deleted an object: the garbage collector
	// does that when the owner was replaced.
	Owner Owner
}

// Controller maintains the objects. The provisioner calls Created, Failed and
// Deleted.
type Controller struct {
	env     *cluster.Env
	options Options
	tracker *topology.Tracker
	classes *cluster.Store[*storagev1.StorageClass]
	claims  *cluster.Store[*corev1.PersistentVolumeClaim]
	objects *cluster.Store[*storagev1.CSIStorageCapacity]
	queue   *work.Queue
	log     *slog.Logger
	manager string

	burst, gap, grace time.Duration

	mu      sync.Mutex
	plan    *plan                // nil until it runs
	asked   map[string]time.Time // when GetCapacity was last called for each question
	created map[string]string    // goal to the object made for it, till the cache has it
	owner   *metav1.OwnerReference
	owned   bool              // owner was resolved
	refused map[string]string // StorageClass to the driver's reason for rejecting it
	// onRefusal is called after an answer that rejects a StorageClass; it may be nil.
	onRefusal func(class string)
	off       bool // the driver lacks GET_CAPACITY, and that was logged
}

// New makes a Controller of the objects of the process's scope.
func New(env *cluster.Env, tracker *topology.Tracker, o Options) *Controller {
	o.Poll = cmp.Or(max(o.Poll, 0), DefaultPoll)
	o.Workers = cmp.Or(max(o.Workers, 0), DefaultWorkers)
	c := &Controller{
		env: env, options: o, tracker: tracker, log: env.Logger.With("controller", "capacity"),
		manager: claim.CapacityManager(env.Scope.Node),
		burst:   burst, gap: gap, grace: grace,
		asked: map[string]time.Time{}, created: map[string]string{}, refused: map[string]string{},
	}
	c.classes, c.objects, c.claims = env.Set.Classes(), env.Set.Capacities(c.manager), env.Set.Claims()
	c.objects.Use(byGoal())
	c.claims.Use(cluster.ClaimByClass())
	c.claims.OnChange(c.claimChanged)
	c.queue = work.New(work.Options{
		Name: "csistoragecapacity", Workers: o.Workers, Flow: c.flow, Retry: env.Retry, Logger: env.Logger, Registerer: env.Registerer,
	})
	env.Track("csistoragecapacity", c.queue)
	c.classes.OnChange(func(_, _ *storagev1.StorageClass) { c.replanSoon() })
	c.objects.OnChange(c.objectChanged)
	tracker.OnChange(c.replanSoon)
	c.register(env.Registerer)
	return c
}

func byGoal() cluster.Index[*storagev1.CSIStorageCapacity] {
	return cluster.Index[*storagev1.CSIStorageCapacity]{Name: "goal", Values: func(object *storagev1.CSIStorageCapacity) []string {
		return []string{goalOfObject(object)}
	}}
}

// The kinds of queue keys: recompute the plan, call GetCapacity for a question,
// delete an object that the plan lacks.
const (
	planKey    = "plan"
	askPrefix  = "ask/"
	dropPrefix = "drop/"
)

// Run maintains the objects until ctx ends. They stay when it returns.
func (c *Controller) Run(ctx context.Context) error {
	c.queue.Add(planKey)
	return c.queue.Run(ctx, c.handle)
}

func (c *Controller) handle(ctx context.Context, key string) (after time.Duration, err error) {
	if supported, err := c.supported(ctx); !supported || err != nil {
		return c.options.Poll, err
	}
	if question, ok := strings.CutPrefix(key, askPrefix); ok {
		return c.ask(ctx, question)
	}
	if name, ok := strings.CutPrefix(key, dropPrefix); ok {
		return 0, c.drop(ctx, name)
	}
	c.replan()
	return 0, nil
}

// flow is the flow of a key: GetCapacity may hang for one class.
func (c *Controller) flow(key string) work.Flow {
	c.mu.Lock()
	defer c.mu.Unlock()
	question, ok := strings.CutPrefix(key, askPrefix)
	if !ok || c.plan == nil || c.plan.questions[question] == nil {
		return work.Flow{}
	}
	return work.Flow{Call: "GetCapacity", Class: c.plan.questions[question].classes[0]}
}

// supported reports whether the driver has GET_CAPACITY. An updated driver may
// gain it, so every key checks.
func (c *Controller) supported(ctx context.Context) (bool, error) {
	capabilities, err := c.env.CSI.ControllerCapabilities(ctx)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !capabilities.Capacity && !c.off {
		c.log.InfoContext(ctx, "the driver lacks GET_CAPACITY: CSIStorageCapacity objects are left as they are", "driver", c.env.Driver)
	}
	c.off = !capabilities.Capacity
	return capabilities.Capacity, nil
}

func (c *Controller) replanSoon() { c.queue.AddAfter(planKey, c.burst) }

// replan computes the plan, queues new questions at once and queues the deletion
// of objects that the plan lacks after the grace period.
func (c *Controller) replan() {
	var classes []*storagev1.StorageClass
	for _, class := range c.classes.List() {
		if wanted(class, c.env.Driver, c.options.Immediate) {
			classes = append(classes, class)
		}
	}
	next := planFor(classes, c.tracker.Segments())
	c.mu.Lock()
	changed := next.changed(c.plan)
	c.plan = next
	for key := range c.asked {
		if next.questions[key] == nil {
			delete(c.asked, key)
		}
	}
	for class := range c.refused {
		if _, there := c.classes.Get(class); !there {
			delete(c.refused, class)
		}
	}
	for goal := range c.created {
		if next.goals[goal] == "" {
			delete(c.created, goal)
		}
	}
	c.mu.Unlock()
	for _, key := range changed {
		c.queue.Add(askPrefix + key)
	}
	for _, object := range c.objects.List() {
		if next.goals[goalOfObject(object)] == "" {
			c.dropLater(object)
		}
	}
}

func (c *Controller) dropLater(object *storagev1.CSIStorageCapacity) {
	c.queue.AddAfter(dropPrefix+cluster.KeyOf(object), c.grace)
}

// objectChanged handles changes of the objects by other clients. The process's own
// writes arrive here as well and must cause no work.
func (c *Controller) objectChanged(old, new *storagev1.CSIStorageCapacity) {
	c.mu.Lock()
	p := c.plan
	c.mu.Unlock()
	switch {
	case p == nil: // the first plan handles all objects
	case new == nil:
		goal := goalOfObject(old)
		if key := p.goals[goal]; key != "" && len(c.objects.By(byGoal(), goal)) == 0 {
			c.forgetOwner()
			c.queue.Add(askPrefix + key)
		}
	case old == nil:
		goal := goalOfObject(new)
		if key := p.goals[goal]; key == "" {
			c.dropLater(new)
		} else if len(c.objects.By(byGoal(), goal)) > 1 {
			c.queue.Add(askPrefix + key)
		}
	}
}
