package host

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
)

func (h *Host) create(text string) (api.ApplyResult, error) {
	return h.Apply(context.Background(), []manifest.File{{Name: "m.yaml", Data: []byte(text)}}, api.ApplyOptions{Create: true})
}

func TestCreate_changesNothingThatExists(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aClass)
	if result, err := h.create(aClaim); err != nil || result.Applied[0].Action != api.Created {
		t.Fatalf("got %+v, %v", result, err)
	}
	bind(t, h)
	rewrite(t, h, claims, "default/data", func(pvc *corev1.PersistentVolumeClaim) { pvc.Labels["of"] = "another" })
	before := version(t, h)
	cases := []struct{ name, text, want string }{
		{"the same", aClaim, ""},
		{"without a label", changed(t, aClaim, ", labels: {a: b}", ""), ""},
		{"without a class", changed(t, aClaim, "storageClassName: c, ", ""), ""},
		{"another size", changed(t, aClaim, "2Gi", "3Gi"), `spec.resources.requests.storage is "2Gi", not "3Gi": change it with 'holdfast resize pvc/data SIZE'`},
		{"another class", changed(t, aClaim, "storageClassName: c", "storageClassName: d"), `its spec.storageClassName is "c", not "d"`},
		{"another label", changed(t, aClaim, "a: b", "a: c"), `its metadata.labels[a] is "b", not "c"`},
		{"one more label", changed(t, aClaim, "a: b", "x: z"), `its metadata.labels[x] is absent, not "z"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			result, err := h.create(c.text)
			switch {
			case c.want == "" && (err != nil || result.Applied[0].Action != api.Unchanged):
				t.Errorf("got %+v, %v", result, err)
			case c.want != "" && (!errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if version(t, h) != before {
		t.Error("something was written")
	}
}

// What is created is owned as what is applied: an apply without its labels removes them.
func TestCreate_ownsAsApplyDoes(t *testing.T) {
	h := newApplier(t)
	if _, err := h.create(aClaim); err != nil {
		t.Fatal(err)
	}
	rewrite(t, h, claims, "default/data", func(pvc *corev1.PersistentVolumeClaim) { pvc.Labels["of"] = "another" })
	labels, annotations := AppliedMetadata(stored(t, h, claims, "default/data"))
	if len(labels) != 1 || labels["a"] != "b" || len(annotations) != 0 {
		t.Errorf("applied are %v and %v", labels, annotations)
	}
	mustApply(t, h, changed(t, aClaim, ", labels: {a: b}", ""))
	if now := stored(t, h, claims, "default/data").Labels; len(now) != 1 || now["of"] != "another" {
		t.Errorf("the labels are %v", now)
	}
}

// The host returns no value of a Secret or a ConfigMap, and so no error tells one.
func TestCreate_namesNoSealedValue(t *testing.T) {
	for _, text := range []string{aConfig, aSecret} {
		h := newApplier(t)
		mustApply(t, h, text)
		_, err := h.create(strings.NewReplacer("debug", "x", "hunter2", "x").Replace(text))
		if !errors.Is(err, api.ErrConflict) || strings.Contains(err.Error(), "debug") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	}
}
