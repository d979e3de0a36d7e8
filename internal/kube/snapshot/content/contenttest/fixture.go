package contenttest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func uid(name string) types.UID { return types.UID("uid-" + name) }

// options keep tests short; the pauses after errors are those of package apiserver.
func options() content.Options {
	return content.Options{Poll: content.Poll{Start: 5 * time.Millisecond, Max: 20 * time.Millisecond}}
}

// Fixture is a cluster with contents of one kind.
type Fixture[T cluster.Object] struct {
	*apiserver.Cluster
	suite *Suite[T]
	t     testing.TB
}

// Start runs the controller on a cluster with the objects and a class. A nil driver is
// a new one.
func (s *Suite[T]) Start(t *testing.T, driver *csidriver.Driver, objects ...runtime.Object) *Fixture[T] {
	t.Helper()
	f := s.prepare(t, driver, objects...)
	f.run(options())
	return f
}

// StartOn runs the controller of one node on its own.
func (s *Suite[T]) StartOn(
	t *testing.T, node string, driver *csidriver.Driver, objects ...runtime.Object,
) *Fixture[T] {
	t.Helper()
	return s.StartAfter(t, func(f *Fixture[T]) {
		f.Env.Scope = cluster.Scope{Node: node, Segments: map[string]string{"node": node}}
	}, driver, objects...)
}

// StartAfter is Start after a change of the cluster.
func (s *Suite[T]) StartAfter(
	t *testing.T, change func(*Fixture[T]), driver *csidriver.Driver, objects ...runtime.Object,
) *Fixture[T] {
	t.Helper()
	f := s.prepare(t, driver, objects...)
	change(f)
	f.run(options())
	return f
}

func (s *Suite[T]) prepare(t testing.TB, driver *csidriver.Driver, objects ...runtime.Object) *Fixture[T] {
	t.Helper()
	if driver == nil {
		driver = csidriver.New(Driver)
	}
	objects = append(objects, s.Class(ClassName, Driver, map[string]string{"tier": "cold"}))
	return &Fixture[T]{apiserver.New(t, driver, objects...), s, t}
}

// run runs the controller until stop.
func (f *Fixture[T]) run(o content.Options) (stop func()) {
	return f.Run(f.Env, f.suite.New(f.Env, o))
}

// restart starts another process.
func (f *Fixture[T]) restart() {
	env := f.NewEnv()
	f.Run(env, f.suite.New(env, options()))
}

// retryEvery replaces the pauses after errors.
func (f *Fixture[T]) retryEvery(pause time.Duration) {
	f.Env.Retry.Start, f.Env.Retry.Max = pause, pause
}

// runOnce runs the controller until a content has failed with a message, and never
// retries.
func (f *Fixture[T]) runOnce(o content.Options, message string) {
	f.t.Helper()
	f.retryEvery(time.Hour)
	stop := f.run(o)
	f.Becomes("a", "failed", f.Fails(message))
	stop()
}

func (f *Fixture[T]) listed() []T {
	f.t.Helper()
	all, err := f.suite.List(f.Context(), f.Cluster)
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

// find returns a content. It lists, since some tests disturb single reads.
func (f *Fixture[T]) find(name string) (object T, ok bool) {
	f.t.Helper()
	for _, object := range f.listed() {
		if object.GetName() == name {
			return object, true
		}
	}
	return object, false
}

// Get returns a content that exists.
func (f *Fixture[T]) Get(name string) T {
	f.t.Helper()
	object, ok := f.find(name)
	if !ok {
		f.t.Fatalf("content %s is gone", name)
	}
	return object
}

// Becomes waits until a content has the state.
func (f *Fixture[T]) Becomes(name, state string, is func(T) bool) (object T) {
	f.t.Helper()
	f.Eventually(func() error {
		if object = f.Get(name); !is(object) {
			return fmt.Errorf("content %s is not %s: %+v", name, state, object)
		}
		return nil
	})
	return object
}

// Done waits until a content is ready and not marked.
func (f *Fixture[T]) Done(name string) T {
	f.t.Helper()
	return f.Becomes(name, "ready", f.suite.IsDone)
}

// Fails returns the condition that the status has an error with a text.
func (f *Fixture[T]) Fails(with string) func(T) bool {
	return func(object T) bool {
		v := f.suite.View(object)
		return strings.Contains(v.Error, with) && !v.Ready
	}
}

// Vanishes waits until a content is gone.
func (f *Fixture[T]) Vanishes(name string) {
	f.t.Helper()
	f.Eventually(func() error {
		if _, ok := f.find(name); ok {
			return fmt.Errorf("content %s still exists", name)
		}
		return nil
	})
}

// stays fails if a content is deleted within a while.
func (f *Fixture[T]) stays(name string) {
	f.t.Helper()
	f.Never(50*time.Millisecond, func() error {
		if _, ok := f.find(name); !ok {
			return fmt.Errorf("content %s is deleted", name)
		}
		return nil
	})
}

// Untouched fails if a content is written, or the driver called, within a while.
func (f *Fixture[T]) Untouched(name string) {
	f.t.Helper()
	before := f.Get(name).GetResourceVersion()
	f.Never(60*time.Millisecond, func() error {
		if object := f.Get(name); object.GetResourceVersion() != before || len(f.Driver.Calls()) > 0 {
			return fmt.Errorf("%s was touched: %+v, calls %q", name, object, f.Driver.Calls())
		}
		return nil
	})
}

// warns waits for a warning about content a.
func (f *Fixture[T]) warns(reason string, parts ...string) {
	f.t.Helper()
	f.Happens(append(parts, "Warning "+reason+" a")...)
}

// DeleteByUser does what snapshot-controller does when the user's object goes.
func (f *Fixture[T]) DeleteByUser(name string) {
	f.t.Helper()
	object := f.Get(name)
	f.suite.UserGone(object)
	f.Put(object)
	f.Delete(object)
}

// AtDriver fails unless the driver has the snapshots of so many contents.
func (f *Fixture[T]) AtDriver(contents int) {
	f.t.Helper()
	left, single := f.suite.Left(f.Driver), f.Driver.SnapshotsLeft()
	if len(left) != contents || len(single) != contents*f.suite.PerContent {
		f.t.Errorf("at the driver: %q, single snapshots %q; want those of %d contents", left, single, contents)
	}
}

// calledNever fails if the driver was called.
func (f *Fixture[T]) calledNever() {
	f.t.Helper()
	if calls := f.Driver.Calls(); len(calls) > 0 {
		f.t.Errorf("the driver was called: %q", calls)
	}
}

// Volume returns a PersistentVolume of the driver on a node.
func Volume(handle, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: handle},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				},
			}}}},
		},
	}
}

// volumesOf returns the PersistentVolumes of a content on a node.
func (s *Suite[T]) volumesOf(object T, node string) (volumes []runtime.Object) {
	for _, handle := range s.View(object).Volumes {
		volumes = append(volumes, Volume(handle, node))
	}
	return volumes
}
