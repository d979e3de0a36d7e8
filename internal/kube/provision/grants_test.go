package provision

import (
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const far = "far" // the namespace of the sources

func crossing(env *cluster.Env, o *Options) {
	o.CrossNamespace, o.Snapshots = true, true
	// Claims wait for events, and not for the end of a pause.
	env.Retry.Start, env.Retry.Max = time.Hour, time.Hour
	env.Set.PollServed(10 * time.Millisecond)
}

// runCrossing starts a provisioner and waits until it knows the grants.
func (w *world) runCrossing() {
	w.t.Helper()
	controller, _ := w.run(crossing)
	w.Eventually(func() error {
		if !controller.grants.HasSynced() {
			return errors.New("the grants are not read")
		}
		return nil
	})
}

func foreign(group *string, kind, name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: group, Kind: kind, Name: name, Namespace: ptr(far)}
	}
}

// farSource is a bound claim "src" and a ready snapshot "s" in the other namespace.
func farSource() []runtime.Object {
	objects := bound("src")
	objects[0].(*corev1.PersistentVolumeClaim).Namespace = far
	objects[1].(*corev1.PersistentVolume).Spec.ClaimRef.Namespace = far
	snapshot, content := newSnapshot("s")
	snapshot.Namespace, content.Spec.VolumeSnapshotRef.Namespace = far, far
	return append(objects, snapshot, content)
}

func newGrant(namespace, kind, group string) *grant.ReferenceGrant {
	return &grant.ReferenceGrant{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "g-" + kind},
		Spec: grant.ReferenceGrantSpec{
			From: []grant.ReferenceGrantFrom{{Kind: "PersistentVolumeClaim", Namespace: "ns"}},
			To:   []grant.ReferenceGrantTo{{Group: group, Kind: kind}},
		},
	}
}

func TestGrant_sourcesInOtherNamespacesNeedOne(t *testing.T) {
	for _, c := range []struct {
		name, group, kind, source string
		want                      claim.Source
	}{
		{"clone", "", "PersistentVolumeClaim", "src", claim.Source{VolumeHandle: "id-pvc-uid-src"}},
		{"restore", claim.SnapshotGroup, "VolumeSnapshot", "s", claim.Source{SnapshotHandle: "snap-1"}},
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			t.Run(c.name+" "+version, func(t *testing.T) {
				w := newWorld(t, append(farSource(), newClass())...)
				w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
				if version != "v1" {
					w.Unserve(grant.Group+"/v1", true)
				}
				w.Add(newGrant("ns", c.kind, c.group)) // of the wrong namespace
				w.runCrossing()
				w.Add(newClaim("a", foreign(&c.group, c.kind, c.source)))
				w.event("Warning ProvisioningFailed ns/a", `no ReferenceGrant in namespace "far" lets claims of namespace "ns" use the source`)
				if len(w.calls()) > 0 || w.stored() > 0 {
					t.Errorf("%d calls and %d intents before the grant", len(w.calls()), w.stored())
				}
				w.Add(newGrant(far, c.kind, c.group))
				w.saved("pvc-uid-a")
				content := w.calls()[0].GetVolumeContentSource()
				if got := (claim.Source{VolumeHandle: content.GetVolume().GetVolumeId(), SnapshotHandle: content.GetSnapshot().GetSnapshotId()}); got != c.want {
					t.Errorf("made of %v", got)
				}
			})
		}
	}
}

// TestGrant_refusalsDoNotRevealSources: the event is the same for a source that does
// not exist.
func TestGrant_refusalsDoNotRevealSources(t *testing.T) {
	w := newWorld(t, newClass(), newGrant("ns", "PersistentVolumeClaim", ""))
	w.runCrossing()
	w.Add(newClaim("a", foreign(nil, "PersistentVolumeClaim", "src")))
	w.event("Warning ProvisioningFailed ns/a", `no ReferenceGrant in namespace "far"`)
}

func TestGrant_isWaitedForWithoutTheCRDs(t *testing.T) {
	w := newWorld(t, append(farSource(), newClass())...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	w.Unserve(grant.Group, true)
	w.run(crossing)
	w.Add(newClaim("a", foreign(nil, "PersistentVolumeClaim", "src")), newClaim("b"))
	w.event("Warning ProvisioningFailed ns/a", "a cluster without Gateway API's CRDs has none")
	w.saved("pvc-uid-b")
	w.Add(newGrant(far, "PersistentVolumeClaim", ""))
	w.Unserve(grant.Group, false)
	w.saved("pvc-uid-a")
}

// TestGrant_aRefusedClaimDoesNotKeepTheSource: otherwise the users of one
// namespace could keep the claims of another from deletion.
func TestGrant_aRefusedClaimDoesNotKeepTheSource(t *testing.T) {
	for name, row := range map[string]struct {
		absent bool
		why    string
	}{
		"no grant": {false, `no ReferenceGrant in namespace "far"`},
		"no CRDs":  {true, "a cluster without Gateway API's CRDs has none"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := farSource()
			source := objects[0].(*corev1.PersistentVolumeClaim)
			w := newWorld(t, append(objects, newClass(), newGrant("ns", "PersistentVolumeClaim", ""))...)
			w.Unserve(grant.Group, row.absent)
			controller, _ := w.run(crossing)
			w.Eventually(func() error {
				if controller.grants.HasSynced() == row.absent || controller.env.Set.Lacks(grant.Group) != row.absent {
					return errors.New("the grants are not read")
				}
				return nil
			})
			w.Add(newClaim("a", foreign(nil, "PersistentVolumeClaim", "src")))
			w.event("Warning ProvisioningFailed ns/a", row.why)
			// As an earlier, finished copy leaves it.
			source.Finalizers = []string{lifecycle.CloneFinalizer}
			w.Put(source)
			w.Delete(source)
			w.Eventually(func() error {
				_, err := w.Core.CoreV1().PersistentVolumeClaims(far).Get(w.Context(), "src", metav1.GetOptions{})
				if !apierrors.IsNotFound(err) {
					return errors.New("the source cannot be deleted")
				}
				return nil
			})
		})
	}
}

// TestGrant_itsEndReleasesTheSource that is being deleted, which the claim that waits
// kept until then.
func TestGrant_itsEndReleasesTheSource(t *testing.T) {
	snapshots := claim.SnapshotGroup
	for _, source := range []struct {
		kind, group, name string
		get               func(w *world) (metav1.Object, error)
	}{
		{"PersistentVolumeClaim", "", "src", func(w *world) (metav1.Object, error) {
			return w.Core.CoreV1().PersistentVolumeClaims(far).Get(w.Context(), "src", metav1.GetOptions{})
		}},
		{"VolumeSnapshot", snapshots, "s", func(w *world) (metav1.Object, error) {
			return w.Snapshots.SnapshotV1().VolumeSnapshots(far).Get(w.Context(), "s", metav1.GetOptions{})
		}},
	} {
		for name, end := range map[string]func(*world, *grant.ReferenceGrant){
			"deleted": func(w *world, g *grant.ReferenceGrant) { w.Delete(g) },
			"changed": func(w *world, g *grant.ReferenceGrant) {
				g.Spec.From[0].Namespace = "others"
				w.Put(g)
			},
		} {
			t.Run(source.kind+" "+name, func(t *testing.T) {
				allowed := newGrant(far, source.kind, source.group)
				objects := farSource()
				objects[0].(*corev1.PersistentVolumeClaim).Finalizers = []string{lifecycle.CloneFinalizer}
				objects[2].(*snapshotv1.VolumeSnapshot).Finalizers = []string{lifecycle.RestoreFinalizer}
				w := newWorld(t, append(objects, allowed, newClaim("a", foreign(&source.group, source.kind, source.name)))...)
				w.runCrossing()
				w.event("Warning ProvisioningFailed ns/a", "not found") // the class
				if source.name == "src" {
					w.Delete(objects[0])
				} else {
					w.Delete(objects[2])
				}
				gone := func() error {
					if _, err := source.get(w); !apierrors.IsNotFound(err) {
						return errors.New("the source remains")
					}
					return nil
				}
				w.Never(50*time.Millisecond, func() error {
					if gone() == nil {
						return errors.New("the source of a claim that waits is released")
					}
					return nil
				})
				end(w, allowed)
				w.Eventually(gone)
			})
		}
	}
}

// TestGrant_unreadOnesAreAskedForAgain: until the grants are read, a claim keeps a source
// that is being deleted. The read of a namespace without a grant ends in no event.
func TestGrant_unreadOnesAreAskedForAgain(t *testing.T) {
	objects := farSource()
	source := objects[0].(*corev1.PersistentVolumeClaim)
	source.Finalizers, source.DeletionTimestamp = []string{lifecycle.CloneFinalizer}, ptr(metav1.Now())
	w := newWorld(t, append(objects, newClass(), newClaim("a", foreign(nil, "PersistentVolumeClaim", "src")))...)
	for _, verb := range []string{"list", "watch"} {
		w.React(verb, "referencegrants", func(apiserver.Request) error { return errors.New("not now") })
	}
	controller, _ := w.run(crossing)
	if pause, err := controller.syncSource(w.Context(), cluster.ClaimSource(far, "src")); err != nil || pause <= 0 {
		t.Errorf("the source is processed again in %v: %v", pause, err)
	}
}

// TestGrant_aCopyKeepsTheSource as long as it is made.
func TestGrant_aCopyKeepsTheSource(t *testing.T) {
	w := newWorld(t, append(farSource(), newClass(), newGrant(far, "PersistentVolumeClaim", ""))...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	w.answer(csidriver.Fail(codes.Internal, "cannot"))
	w.run(crossing)
	finalizers := func() []string {
		source, err := w.Core.CoreV1().PersistentVolumeClaims(far).Get(w.Context(), "src", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return source.Finalizers
	}
	pvc := newClaim("a", foreign(nil, "PersistentVolumeClaim", "src"))
	w.Add(pvc)
	w.event("Warning ProvisioningFailed ns/a", "cannot")
	if !has(finalizers(), lifecycle.CloneFinalizer) {
		t.Error("the source is not kept")
	}
	w.Delete(pvc)
	w.Eventually(func() error {
		if has(finalizers(), lifecycle.CloneFinalizer) {
			return errors.New("the source is still kept")
		}
		return nil
	})
}

// TestGrant_onNodes: the claim follows its source to the node, over namespaces.
func TestGrant_onNodes(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	objects := farSource()
	lyingOn("n1")(objects[1].(*corev1.PersistentVolume))
	w.Add(append(objects, newGrant(far, "PersistentVolumeClaim", ""))...)
	w.onItsOwn("n1", crossing)
	w.onItsOwn("n2", crossing)
	w.Add(newClaim("a", foreign(nil, "PersistentVolumeClaim", "src"), onNode("n2")))
	w.chosen("a", "n1")
	w.saved("pvc-uid-a")
}
