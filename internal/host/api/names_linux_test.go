package api

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func TestClient_namesTheRemedyForTooMuchInput(t *testing.T) {
	f := serve(t)
	_, err := f.Apply(t.Context(), []manifest.File{{Name: "a.yaml", Data: make([]byte, maximumBody-1000)}}, ApplyOptions{})
	if err == nil || !strings.Contains(err.Error(), "one apply takes 16777216 at most: apply them in parts") {
		t.Errorf("got %v", err)
	}
}

// A name like ".." would be the path of another kind: a claim of that name would
// be its namespace.
func TestClient_asksForNoOtherPathThanThatOfTheName(t *testing.T) {
	f := serve(t)
	claims, _ := store.KindOf("persistentvolumeclaims")
	f.put(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}})
	for _, name := range []string{"", ".", "..", "../pods", "a/b"} {
		object, err := f.Get(t.Context(), claims, "default", name)
		if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "name") {
			t.Errorf("get %q: got %v, %v", name, object, err)
		}
		if deleted, err := f.Delete(t.Context(), claims, "default", name, DeleteOptions{}); err == nil {
			t.Errorf("delete %q: got %+v", name, deleted)
		}
	}
	if list, err := f.List(t.Context(), claims, ListOptions{Namespace: ".."}); err == nil {
		t.Errorf("a list of the namespace ..: got %+v", list)
	}
}
