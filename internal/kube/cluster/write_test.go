package cluster_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestRetry_ofAGuardedWrite: each row changes the object between the decision and the
// write, which adds a label next to those that the object has.
func TestRetry_ofAGuardedWrite(t *testing.T) {
	label := func(name string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Labels = map[string]string{name: ""} }
	}
	for name, row := range map[string]struct {
		between func(*apiserver.Cluster, *corev1.PersistentVolume)
		still   bool
		want    error
		labels  []string // after the write; nil for an object that is gone
	}{
		"unchanged": {func(*apiserver.Cluster, *corev1.PersistentVolume) {}, true, nil, []string{"own"}},
		"changed by another client": {func(c *apiserver.Cluster, _ *corev1.PersistentVolume) {
			c.Put(volume("a", label("other")))
		}, true, nil, []string{"other", "own"}},
		"changed, and not needed any more": {func(c *apiserver.Cluster, _ *corev1.PersistentVolume) {
			c.Put(volume("a", label("other")))
		}, false, cluster.ErrChanged, []string{"other"}},
		"deleted": {func(c *apiserver.Cluster, v *corev1.PersistentVolume) { c.Delete(v) }, true, cluster.ErrGone, nil},
		"created again": {func(c *apiserver.Cluster, v *corev1.PersistentVolume) {
			c.Delete(v)
			c.Put(volume("a", func(v *corev1.PersistentVolume) { v.UID = "another" }))
		}, true, cluster.ErrGone, []string{}}, // not written to
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
			store, client := c.Env.Set.Volumes(), c.Env.Core.CoreV1().PersistentVolumes()
			c.Start()
			cached, _ := store.Get("a")
			row.between(c, cached)
			still := func(*corev1.PersistentVolume) bool { return row.still }
			_, err := store.Retry(t.Context(), client, cached, still, func(v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
				labels := map[string]any{"own": ""}
				return store.Merge(t.Context(), client, v, map[string]any{
					"metadata": map[string]any{"resourceVersion": v.ResourceVersion, "labels": labels},
				})
			})
			if !errors.Is(err, row.want) || err != nil && row.want == nil {
				t.Errorf("got %v; want %v", err, row.want)
			}
			live, err := client.Get(t.Context(), "a", metav1.GetOptions{})
			if (row.labels == nil) != apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			var got []string
			for _, name := range []string{"other", "own"} {
				if live != nil {
					if _, ok := live.Labels[name]; ok {
						got = append(got, name)
					}
				}
			}
			if !slices.Equal(got, row.labels) {
				t.Errorf("labels %q; want %q", got, row.labels)
			}
		})
	}
}

// TestRetry_ofAWriteThatTheAPIServerNeverAccepts: a failed test of a JSON patch has the
// same code as an invalid object. The version shows that the object has not changed.
func TestRetry_ofAWriteThatTheAPIServerNeverAccepts(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	store, client := c.Env.Set.Volumes(), c.Env.Core.CoreV1().PersistentVolumes()
	c.Start()
	tries := 0
	c.React("patch", "persistentvolumes", func(apiserver.Request) error {
		tries++
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), "a", nil)
	})
	cached, _ := store.Get("a")
	always := func(*corev1.PersistentVolume) bool { return true }
	_, err := store.Retry(t.Context(), client, cached, always, func(v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
		return store.Patch(t.Context(), client, v, cluster.AddFinalizers(v, "x/y")...)
	})
	if !apierrors.IsInvalid(err) || errors.Is(err, cluster.ErrChanged) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// TestMerge_withoutTheObject: a resource that lacks the subresource has the same code as an
// object that is gone. The text tells them apart.
func TestMerge_withoutTheObject(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	store, client := c.Env.Set.Volumes(), c.Env.Core.CoreV1().PersistentVolumes()
	c.Start()
	c.React("patch", "persistentvolumes", func(apiserver.Request) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
		}}
	})
	cached, _ := store.Get("a")
	_, err := store.Merge(t.Context(), client, cached, map[string]any{}, "status")
	if !errors.Is(err, cluster.ErrGone) || !strings.Contains(err.Error(), "could not find the requested resource") {
		t.Error(err)
	}
}

// TestMerge_thatTheAPIServerNeverAccepts: the guards of a merge patch fail with a conflict.
func TestMerge_thatTheAPIServerNeverAccepts(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	store, client := c.Env.Set.Volumes(), c.Env.Core.CoreV1().PersistentVolumes()
	c.Start()
	c.React("patch", "persistentvolumes", func(apiserver.Request) error {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), "a", nil)
	})
	cached, _ := store.Get("a")
	_, err := store.Merge(t.Context(), client, cached, map[string]any{})
	if !apierrors.IsInvalid(err) || errors.Is(err, cluster.ErrChanged) {
		t.Error(err)
	}
}

// TestPatch_thatDeletesTheObjectIsNotStored: the answer to the removal of the last
// finalizer is older than the deletion that the watch delivers.
func TestPatch_thatDeletesTheObjectIsNotStored(t *testing.T) {
	deleted := metav1.Now()
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a", func(v *corev1.PersistentVolume) {
		v.Finalizers, v.DeletionTimestamp = []string{"x/y"}, &deleted
	}))
	store, client := c.Env.Set.Volumes(), c.Env.Core.CoreV1().PersistentVolumes()
	c.Start()
	cached, _ := store.Get("a")
	c.React("watch", "*", func(apiserver.Request) error { return apierrors.NewServiceUnavailable("down") })
	c.BreakWatches()
	if _, err := store.Patch(t.Context(), client, cached, cluster.RemoveFinalizers(cached, "x/y")...); err != nil {
		t.Fatal(err)
	}
	if n := cluster.Assumed(store); n > 0 {
		t.Errorf("%d answers are stored", n)
	}
}
