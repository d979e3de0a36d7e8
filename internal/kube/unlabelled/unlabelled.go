// Package unlabelled finds objects that lack the label by which the processes of nodes
// select theirs, so that no node's cache has them. It matters to deletions, which cannot be
// undone: an administrator may have just written an object that names the same storage.
package unlabelled

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// defaultSettle is far above the time that an API server's watch of policies takes.
const defaultSettle = time.Minute

// Finder finds such objects of one kind. They are read from the API server, which evaluates
// each object of the kind for it. The read is not repeated if it found none and an admission
// policy labels new objects. A Finder is safe for concurrent use.
type Finder[T cluster.Object] struct{ *finder }

// finder is a Finder of any kind: code for each kind would make the program larger.
type finder struct {
	env    *cluster.Env
	policy cluster.LabelPolicy
	list   func(context.Context) ([]cluster.Object, error)
	batch  *concurrency.Batcher[struct{}, []cluster.Object]

	mu    sync.Mutex
	state string    // of the policy when it was read last, "" without one
	since time.Time // when it was first read
	none  bool      // no object lacked the label while the policy was in force
}

// New finds the objects of a store that lack a label and that own selects. Others may be
// many: those of other drivers lack it, too. policy labels new objects; it may be zero.
func New[T cluster.Object](
	env *cluster.Env, store *cluster.Store[T], label string, own func(T) bool, policy cluster.LabelPolicy,
) *Finder[T] {
	list := func(ctx context.Context) (found []cluster.Object, err error) {
		err = store.Read(ctx, "!"+label, func(all iter.Seq[T]) {
			for object := range all {
				if own(object) {
					found = append(found, object.DeepCopyObject().(T)) //nolint:forcetypeassert // a copy, which keeps no page
				}
			}
		})
		return found, err
	}
	f := &finder{env: env, policy: policy, list: list}
	f.batch = concurrency.NewBatcher(f.read, concurrency.BatchOptions{})
	return &Finder[T]{f}
}

// Prepare reads the policy, so that it counts as in force (LabelPolicy.Settle) at the first
// List that comes later. A nil Finder needs none.
func (f *Finder[T]) Prepare(ctx context.Context) {
	if f != nil {
		f.begin(f.readPolicy(ctx))
	}
}

// List returns the objects as they were after the call began. Calls share requests. It
// returns the errors of cluster.Store.Read, and concurrency.ErrClosed after Close.
func (f *Finder[T]) List(ctx context.Context) (iter.Seq[T], error) {
	objects, _, err := f.batch.Get(ctx, struct{}{})
	return func(yield func(T) bool) {
		for _, object := range objects {
			if !yield(object.(T)) { //nolint:forcetypeassert // list has objects of this type
				return
			}
		}
	}, err
}

// Close ends the requests. A nil Finder has none.
func (f *Finder[T]) Close() {
	if f != nil {
		f.batch.Close()
	}
}

func (f *finder) read(ctx context.Context, _ []struct{}) (map[struct{}][]cluster.Object, error) {
	state := f.readPolicy(ctx)
	none, settled := f.begin(state)
	if none {
		return nil, nil
	}
	found, err := f.list(ctx)
	if err == nil && len(found) == 0 && settled {
		f.noneFound(state)
	}
	return map[struct{}][]cluster.Object{{}: found}, err
}

// readPolicy returns what identifies the policy and its binding, which an administrator may
// remove or replace at any time; "" if they cannot be read.
func (f *finder) readPolicy(ctx context.Context) string {
	name := f.policy.Name
	if name == "" {
		return ""
	}
	policy, err := f.env.Core.AdmissionV1().MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		f.env.Logger.DebugContext(ctx, "the policy of labels is not used", "policy", name, "error", err)
		return ""
	}
	binding, err := f.env.Core.AdmissionV1().MutatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		f.env.Logger.DebugContext(ctx, "the policy of labels is not used", "binding", name, "error", err)
		return ""
	}
	return fmt.Sprintf("%s/%d %s/%d", policy.UID, policy.Generation, binding.UID, binding.Generation)
}

// begin records the policy before a list. none reports that no object lacked the label
// under this policy, and settled that all API servers apply it.
func (f *finder) begin(state string) (none, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state != f.state {
		f.state, f.since, f.none = state, time.Now(), false
	}
	settle := cmp.Or(f.policy.Settle, defaultSettle)
	return f.none, state != "" && time.Since(f.since) >= settle
}

// noneFound records that no object lacked the label in a list that began after the policy
// was in force.
func (f *finder) noneFound(state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.none = f.state == state
}
