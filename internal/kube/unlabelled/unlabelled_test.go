package unlabelled

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driver = "memory.test"
	policy = "labels"
)

func volume(name, driver string, labels map[string]string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h-" + name}
	return v
}

func labelledFor(node string) map[string]string { return map[string]string{claim.NodeLabel: node} }

// policyObjects are a policy and its binding.
func policyObjects(uid int, generation int64) []runtime.Object {
	at := metav1.ObjectMeta{Name: policy, UID: types.UID(fmt.Sprint("policy-", uid)), Generation: generation}
	return []runtime.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: at}, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: at},
	}
}

// world is an API server, and a Finder that counts its lists.
type world struct {
	*apiserver.Cluster
	finder *Finder[*corev1.PersistentVolume]
	lists  atomic.Int64
}

func newWorld(t *testing.T, settle time.Duration, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{Cluster: apiserver.New(t, csidriver.New(driver), objects...)}
	env := w.NewEnv()
	w.finder = New(env, env.Set.Volumes(), claim.NodeLabel, func(v *corev1.PersistentVolume) bool {
		return v.Spec.CSI.Driver == driver
	}, cluster.LabelPolicy{Name: policy, Settle: settle})
	t.Cleanup(w.finder.Close)
	w.React("list", "persistentvolumes", func(apiserver.Request) error { w.lists.Add(1); return nil })
	return w
}

// names lists the objects, and returns how many requests that took.
func (w *world) names(t *testing.T) (names []string, lists int64) {
	t.Helper()
	before := w.lists.Load()
	found, err := w.finder.List(w.Context())
	if err != nil {
		t.Fatal(err)
	}
	for v := range found {
		names = append(names, v.Name)
	}
	return names, w.lists.Load() - before
}

func namesOf(volumes []cluster.Object) (names []string) {
	for _, v := range volumes {
		names = append(names, v.GetName())
	}
	return names
}

func TestFinder_listsOnceUnderAPolicy(t *testing.T) {
	w := newWorld(t, time.Nanosecond, append(policyObjects(1, 1),
		volume("a", driver, labelledFor("n1")), volume("of-another-driver", "other.test", nil))...)
	for i, want := range []int64{1, 0, 0} {
		if names, lists := w.names(t); len(names) > 0 || lists != want {
			t.Errorf("call %d: %q with %d lists, want %d", i, names, lists, want)
		}
	}
}

// TestFinder_settlesFromTheStartOn: the time in which API servers learn of the policy does not
// begin with the first deletion.
func TestFinder_settlesFromTheStartOn(t *testing.T) {
	w := newWorld(t, 50*time.Millisecond, policyObjects(1, 1)...)
	w.finder.Prepare(w.Context())
	time.Sleep(50 * time.Millisecond)
	for i, want := range []int64{1, 0} {
		if names, lists := w.names(t); len(names) > 0 || lists != want {
			t.Errorf("call %d: %q with %d lists, want %d", i, names, lists, want)
		}
	}
}

// TestFinder_listsAgain: a cluster without such policies, a policy that API servers may not
// apply yet, and objects that lack the label.
func TestFinder_listsAgain(t *testing.T) {
	for name, row := range map[string]struct {
		settle  time.Duration
		objects []runtime.Object
		want    int // objects
	}{
		"no policy":       {time.Nanosecond, nil, 0},
		"no binding":      {time.Nanosecond, policyObjects(1, 1)[:1], 0},
		"no policy bound": {time.Nanosecond, policyObjects(1, 1)[1:], 0},
		"a new policy":    {0, policyObjects(1, 1), 0},
		"no label":        {time.Nanosecond, append(policyObjects(1, 1), volume("a", driver, nil)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.settle, row.objects...)
			for range 3 {
				if names, lists := w.names(t); len(names) != row.want || lists != 1 {
					t.Errorf("%q with %d lists", names, lists)
				}
			}
		})
	}
}

// TestFinder_failure: an error of the API server is the caller's, and proves nothing.
func TestFinder_failure(t *testing.T) {
	w := newWorld(t, time.Nanosecond, append(policyObjects(1, 1), volume("a", driver, nil))...)
	var fails atomic.Bool
	fails.Store(true)
	w.React("list", "persistentvolumes", func(apiserver.Request) error {
		if fails.Load() {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "", nil)
		}
		return nil
	})
	if _, err := w.finder.List(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("a failed list returned %v", err)
	}
	fails.Store(false)
	if names, _ := w.names(t); !slices.Equal(names, []string{"a"}) {
		t.Errorf("after a failure: %q", names)
	}
}

// TestModel_findsWhatLacksTheLabel: administrators install, change and remove the policy and
// write volumes; the coordinating process labels them. The API server labels new volumes
// while it has the policy and its binding. Every list must be complete.
func TestModel_findsWhatLacksTheLabel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t, time.Nanosecond)
		lacking := map[string]bool{}
		var installed [2]bool // policy, binding
		var uid, count int
		generation := int64(1)
		r.Repeat(map[string]func(*rapid.T){
			"install": func(r *rapid.T) {
				which := rapid.IntRange(0, 1).Draw(r, "which")
				if installed[which] {
					generation++
				} else {
					uid++
				}
				installed[which] = true
				w.Put(policyObjects(uid, generation)[which])
			},
			"remove": func(r *rapid.T) {
				which := rapid.IntRange(0, 1).Draw(r, "which")
				if installed[which] {
					w.Delete(policyObjects(0, 0)[which])
				}
				installed[which] = false
			},
			"write": func(*rapid.T) {
				count++
				name := fmt.Sprint("v", count)
				if installed == [2]bool{true, true} {
					w.Add(volume(name, driver, labelledFor(claim.UnknownNode)))
					return
				}
				lacking[name] = true
				w.Add(volume(name, driver, nil))
			},
			"label": func(*rapid.T) {
				for name := range lacking {
					w.Put(volume(name, driver, labelledFor("n1")))
				}
				clear(lacking)
			},
			"": func(r *rapid.T) {
				found, err := w.finder.read(w.Context(), nil) // List waits for a burst to end
				if err != nil {
					r.Fatal(err)
				}
				names := namesOf(found[struct{}{}])
				if len(names) != len(lacking) || slices.ContainsFunc(names, func(name string) bool { return !lacking[name] }) {
					r.Fatalf("the list has %q of %v", names, lacking)
				}
			},
		})
		w.finder.Close()
	})
}
