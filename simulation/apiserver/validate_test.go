package apiserver_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestPatch_answersAsTheAPIServerDoes compares the codes of rejected patches.
func TestPatch_answersAsTheAPIServerDoes(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	c := apiserver.New(t, csidriver.New("memory.test"), labelled("a", "n1"), class)
	volumes, classes := c.Core.CoreV1().PersistentVolumes(), c.Core.StorageV1().StorageClasses()
	patch := func(kind types.PatchType, text string) error {
		_, err := volumes.Patch(t.Context(), "a", kind, []byte(text), metav1.PatchOptions{})
		return err
	}
	_, noStatus := classes.Patch(t.Context(), "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
	for name, row := range map[string]struct {
		err  error
		want int32
	}{
		"a test that fails":         {patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/uid","value":"x"}]`), http.StatusUnprocessableEntity},
		"a version that has passed": {patch(types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`), http.StatusConflict},
		"another object":            {patch(types.MergePatchType, `{"metadata":{"uid":"x"}}`), http.StatusConflict},
		"an invalid label":          {patch(types.MergePatchType, `{"metadata":{"labels":{"a":"not valid"}}}`), http.StatusUnprocessableEntity},
		"a label that is too long":  {patch(types.MergePatchType, `{"metadata":{"labels":{"a":"`+strings.Repeat("a", 64)+`"}}}`), http.StatusUnprocessableEntity},
		"a kind without a status":   {noStatus, http.StatusNotFound},
	} {
		var status apierrors.APIStatus
		if !errors.As(row.err, &status) || status.Status().Code != row.want {
			t.Errorf("%s: %v, want %d", name, row.err, row.want)
		}
	}
}
