package host

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// runs stores a manifest as a run does.
func runs(t *testing.T, h *Host, text string) {
	t.Helper()
	objects, err := manifest.Decode([]manifest.File{{Name: "m.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := h.plan(objects)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.write(plan); err != nil {
		t.Fatal(err)
	}
}

// What a run gave an object, a host takes away again when it is not given any
// more: an annotation may be a rule.
func TestWrite_ownsLabelsAndAnnotations(t *testing.T) {
	h := newApplier(t)
	space := func(annotations string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, annotations: {" + annotations + "}}\n"
	}
	claimWith := func(labels string) string {
		return aClass + "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, labels: {" + labels + "}}\n" +
			"spec: {storageClassName: c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}\n"
	}
	runs(t, h, space("a: b")+"---\n"+claimWith("a: b"))
	runs(t, h, space("a: b, c: d")+"---\n"+claimWith("a: b, c: d")) // what is there is written anew
	rewrite(t, h, (*store.Tx).Namespaces, "team", func(n *corev1.Namespace) { n.Annotations["by"] = "somebody" })
	mustApply(t, h, space("c: d")+"---\n"+claimWith("c: d"))
	if got := stored(t, h, (*store.Tx).Namespaces, "team").Annotations; !slices.Equal(slices.Sorted(maps.Keys(got)), []string{"by", "c"}) {
		t.Errorf("the namespace has %v", got)
	}
	if got := stored(t, h, claims, "default/data").Labels; !slices.Equal(slices.Sorted(maps.Keys(got)), []string{"c"}) {
		t.Errorf("the claim has %v", got)
	}
}
