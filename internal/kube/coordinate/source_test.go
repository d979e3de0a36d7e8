package coordinate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// far is the namespace of sources that claims of "ns" may use with a ReferenceGrant.
const far = "far"

func crossing(_ *cluster.Env, o *Options) { o.CrossNamespace = true }

// fromFar makes a claim a copy of a claim or a snapshot in another namespace.
func fromFar(kind, name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		namespace := far
		pvc.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: kind, Name: name, Namespace: &namespace}
		if kind == snapshotKind {
			group := claim.SnapshotGroup
			pvc.Spec.DataSourceRef.APIGroup = &group
		}
	}
}

func newGrant(kind string) *grant.ReferenceGrant {
	to := grant.ReferenceGrantTo{Kind: kind}
	if kind == snapshotKind {
		to.Group = claim.SnapshotGroup
	}
	return &grant.ReferenceGrant{
		ObjectMeta: metav1.ObjectMeta{Namespace: far, Name: "copies"},
		Spec: grant.ReferenceGrantSpec{
			From: []grant.ReferenceGrantFrom{{Kind: claimKind, Namespace: "ns"}}, To: []grant.ReferenceGrantTo{to},
		},
	}
}

// farSources are a claim and a snapshot, both on node n2.
func farSources() []runtime.Object {
	source := newClaim("src", bound)
	objects := append(newSnapshot("snap"), newVolume("snap", at(hostKey, "n2")), newVolume("src", at(hostKey, "n2")), source)
	source.Namespace = far
	objects[0].(*snapshotv1.VolumeSnapshot).Namespace = far
	return objects
}

// TestSelect_sourcesInOtherNamespacesNeedAGrant: no node is selected, and the event does
// not reveal whether the source exists.
func TestSelect_sourcesInOtherNamespacesNeedAGrant(t *testing.T) {
	for kind, name := range map[string]string{claimKind: "src", snapshotKind: "snap"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(farSources()...)...)
			w.run(crossing)
			w.Add(newClaim("a", fromFar(kind, name)), newClaim("b", fromFar(kind, "none")))
			w.event("ns/a", `no ReferenceGrant in namespace "far" lets claims of namespace "ns" use the source`)
			w.event("ns/b", `no ReferenceGrant in namespace "far" lets claims of namespace "ns" use the source`)
			w.selected("a", "")
			for _, event := range w.Events() {
				if strings.Contains(event, "does not exist") {
					t.Errorf("an event reveals that the source does not exist: %s", event)
				}
			}
			w.Add(newGrant(kind))
			w.selected("a", "n2")
			w.event("ns/b", "does not exist")
		})
	}
}

func TestSelect_sourcesInOtherNamespacesAreOff(t *testing.T) {
	w := newWorld(t, twoNodes(append(farSources(), newGrant(claimKind))...)...)
	w.run()
	w.Add(newClaim("a", fromFar(claimKind, "src")))
	w.event("ns/a", "start the provisioner with --cross-namespace-sources")
	w.selected("a", "")
}

// TestSources_aRefusedClaimDoesNotKeepThem: otherwise the users of one namespace could keep
// the claims of another from deletion.
func TestSources_aRefusedClaimDoesNotKeepThem(t *testing.T) {
	for name, granted := range map[string]bool{"without a grant": false, "with a grant": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := newClaim("src", bound, func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = []string{lifecycle.CloneFinalizer} })
			source.Namespace = far
			w := newWorld(t, twoNodes(source, newVolume("src", at(hostKey, "gone")))...)
			if granted {
				w.Add(newGrant(claimKind))
			}
			controller, _ := w.controller(crossing)
			w.Eventually(func() error {
				if !controller.grants.HasSynced() {
					return errors.New("the grants are not read")
				}
				return nil
			})
			w.Add(newClaim("a", fromFar(claimKind, "src"), ofClass("none")))
			w.event("ns/a", "not found")
			w.Delete(source)
			gone := func() error {
				if _, err := w.Core.CoreV1().PersistentVolumeClaims(far).Get(w.Context(), "src", metav1.GetOptions{}); err == nil {
					return errors.New("the source remains")
				}
				return nil
			}
			if !granted {
				w.Eventually(gone)
				return
			}
			w.Never(50*time.Millisecond, func() error {
				if gone() == nil {
					return errors.New("the source of a claim that waits is released")
				}
				return nil
			})
			w.Delete(newGrant(claimKind))
			w.Eventually(gone)
		})
	}
}

// TestSelect_byTheTopologyOfTheSnapshot: the annotation comes before the label of the
// content, which names the node whose process manages it, and before its volume.
func TestSelect_byTheTopologyOfTheSnapshot(t *testing.T) {
	restorable := func(key string, values ...string) func(*snapshotv1.VolumeSnapshotContent) {
		return func(content *snapshotv1.VolumeSnapshotContent) {
			var terms []string
			for _, value := range values {
				terms = append(terms, fmt.Sprintf(`{"matchLabelExpressions":[{"key":%q,"values":[%q]}]}`, key, value))
			}
			content.Annotations = map[string]string{claim.NodeAffinityAnnotation: "[" + strings.Join(terms, ",") + "]"}
			content.Labels = map[string]string{claim.ManagedByLabel: "n1"}
		}
	}
	damaged := func(content *snapshotv1.VolumeSnapshotContent) {
		content.Annotations = map[string]string{claim.NodeAffinityAnnotation: "x"}
	}
	nodes := slices.Concat(machine("n1"), machine("n2"), machine("n3"), machine("n4", cordoned))
	for name, row := range map[string]struct {
		change func(*snapshotv1.VolumeSnapshotContent)
		class  string
		want   string
		event  string
	}{
		"on one node":                        {restorable(hostKey, "n2"), "fast", "n2", ""},
		"on several, the one with most room": {restorable(hostKey, "n2", "n3", "n4"), "fast", "n3", ""},
		"in a zone":                          {restorable(zoneKey, "z"), "fast", "n1", ""},
		"in a zone, the class allows one":    {restorable(zoneKey, "z"), "only", "n2", ""},
		"where the class allows none":        {restorable(hostKey, "n1"), "only", "", `is on no node that StorageClass "only" allows`},
		"on a node that accepts no pods":     {restorable(hostKey, "n4"), "fast", "", `is on node "n4", which is not ready or accepts no pods`},
		"on a node without the driver":       {restorable(hostKey, "n9"), "fast", "", "is on a node that does not run driver d.example"},
		"with a damaged annotation":          {damaged, "fast", "", claim.NodeAffinityAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(slices.Clone(nodes), newClass("fast"), newClass("only", allowed("n2")),
				room("fast", "n1", 9<<30), room("fast", "n2", 2<<30), room("fast", "n3", 5<<30), newVolume("snap", at(hostKey, "n1")))...)
			w.Add(newSnapshot("snap", row.change)...)
			w.run()
			w.Add(newClaim("a", restoreOf("snap"), ofClass(row.class)))
			if row.event != "" {
				w.event("ns/a", row.event)
			}
			w.selected("a", row.want)
		})
	}
}
