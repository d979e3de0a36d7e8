package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func volume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "memory.test", VolumeHandle: "h-" + name}
	for _, f := range change {
		f(v)
	}
	return v
}

func TestStore_readsItsOwnWritesBeforeTheWatchDeliversThem(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	volumes := c.Env.Set.Volumes()
	c.Start()
	// From here on no event comes through.
	c.React("watch", "*", func(apiserver.Request) error { return apierrors.NewServiceUnavailable("down") })
	c.BreakWatches()
	time.Sleep(20 * time.Millisecond)
	answer, err := c.Core.CoreV1().PersistentVolumes().Patch(t.Context(), "a", types.MergePatchType,
		cluster.MergePatch(map[string]any{"metadata": map[string]any{"labels": map[string]string{"x": "y"}}}), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if old, _ := volumes.Get("a"); !volumes.Reached(old) || volumes.Reached(answer) {
		t.Error("the watch has reached the old version, and not the new one")
	}
	volumes.Wrote(answer)
	if got, _ := volumes.Get("a"); got.Labels["x"] != "y" {
		t.Error("Get gives the state before the own write")
	}
	if got := volumes.List(); len(got) != 1 || got[0].Labels["x"] != "y" {
		t.Error("List gives the state before the own write")
	}
}

func TestStore_dropsOwnWritesThatTheWatchHasDelivered(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	volumes := c.Env.Set.Volumes()
	c.Start()
	for i := range 20 {
		answer, err := c.Core.CoreV1().PersistentVolumes().Patch(t.Context(), "a", types.MergePatchType,
			cluster.MergePatch(map[string]any{"metadata": map[string]any{"labels": map[string]string{"x": fmt.Sprint(i)}}}), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		volumes.Wrote(answer)
	}
	c.Eventually(func() error { // without a reader of the object
		if n := cluster.Assumed(volumes); n > 0 {
			return fmt.Errorf("%d own writes are kept", n)
		}
		return nil
	})
}

func TestStore_aDeletedObjectStaysDeletedAfterALateAnswer(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	volumes := c.Env.Set.Volumes()
	c.Start()
	answer, err := c.Core.CoreV1().PersistentVolumes().Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Delete(volume("a"))
	c.Add(volume("b"))
	c.Eventually(func() error {
		if _, found := volumes.Get("b"); !found {
			return errors.New("b is not there")
		}
		return nil
	})
	volumes.Wrote(answer)
	if _, found := volumes.Get("a"); found {
		t.Error("the answer to an old write brought a deleted object back")
	}
}

func TestStore_handlersSeeEachChangeAndIndexesFollow(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
	volumes := c.Env.Set.Volumes()
	volumes.Use(cluster.VolumeByHandle())
	var added, gone atomic.Int32
	volumes.OnChange(func(old, new *corev1.PersistentVolume) {
		switch {
		case old == nil:
			added.Add(1)
		case new == nil:
			gone.Add(1)
		}
	})
	c.Start()
	c.BreakWatches()
	c.Add(volume("b"))
	c.Delete(volume("a"))
	c.Eventually(func() error {
		if added.Load() != 2 || gone.Load() != 1 {
			return errors.New("not all changes came")
		}
		return nil
	})
	found := volumes.By(cluster.VolumeByHandle(), cluster.HandleKey("memory.test", "h-b"))
	if len(found) != 1 || found[0].Name != "b" {
		t.Errorf("by handle: %v", found)
	}
	if found := volumes.By(cluster.VolumeByHandle(), cluster.HandleKey("memory.test", "h-a")); len(found) != 0 {
		t.Errorf("a deleted volume is still found: %v", found)
	}
}

func TestSet_startsCustomResourcesWhenTheyAreInstalled(t *testing.T) {
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	c := apiserver.New(t, csidriver.New("memory.test"), content)
	c.Unserve(snapshotv1.SchemeGroupVersion.Group, true)
	cluster.SetServePoll(c.Env.Set, 10*time.Millisecond)
	contents := c.Env.Set.Contents()
	c.Start() // does not wait for what the cluster lacks
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wait := func(ctx context.Context) error {
		return c.Env.WaitServed(ctx, snapshotv1.SchemeGroupVersion.Group, "v1", "volumesnapshotcontents")
	}
	if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waiting for an absent kind: %v", err)
	}
	c.Unserve(snapshotv1.SchemeGroupVersion.Group, false)
	if err := wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, found := contents.Get("s"); !found {
		t.Error("the content is not there")
	}
}

// TestSet_kindsThatAClusterMayLack: the caches of the others sync, and a kind that is
// served is waited for.
func TestSet_kindsThatAClusterMayLack(t *testing.T) {
	for _, served := range []bool{true, false} {
		c := apiserver.New(t, csidriver.New("memory.test"), volume("a"))
		c.Unserve("storage.k8s.io/v1/volumeattributesclasses", !served)
		cluster.SetServePoll(c.Env.Set, 10*time.Millisecond)
		volumes, classes := c.Env.Set.Volumes(), c.Env.Set.AttributesClasses()
		var failing atomic.Bool
		failing.Store(true)
		c.React("*", "volumeattributesclasses", func(apiserver.Request) error {
			if failing.Load() {
				return apierrors.NewServiceUnavailable("down")
			}
			return nil
		})
		c.Env.Set.Start(t.Context())
		if served {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := c.Env.Set.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a kind that is served and does not answer: %v", err)
			}
			cancel()
			failing.Store(false)
		}
		if err := c.Env.Set.Wait(t.Context()); err != nil || classes.HasSynced() != served {
			t.Errorf("served %v: %v, synced %v", served, err, classes.HasSynced())
		}
		if _, found := volumes.Get("a"); !found {
			t.Error("the volume is not there")
		}
		failing.Store(false)
		c.Unserve("storage.k8s.io/v1/volumeattributesclasses", false) // after an upgrade
		c.Eventually(func() error {
			if !classes.HasSynced() {
				return errors.New("the classes are not there")
			}
			return nil
		})
	}
}

func TestScope_ownsWhatItsNodeCanReach(t *testing.T) {
	at := func(values ...string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: values},
				}}},
			}}
		}
	}
	empty := func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}}
	}
	scope := cluster.Scope{Node: "n1", Segments: map[string]string{"node": "n1"}}
	for name, c := range map[string]struct {
		volume *corev1.PersistentVolume
		want   bool
	}{
		"its own":     {volume("v", at("n1")), true},
		"one of two":  {volume("v", at("n2", "n1")), true},
		"another's":   {volume("v", at("n2")), false},
		"no affinity": {volume("v"), false},
		"empty term":  {volume("v", empty), false},
	} {
		if got := scope.OwnsVolume(c.volume); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if !(cluster.Scope{}).OwnsVolume(c.volume) {
			t.Errorf("%s: not the central process's", name)
		}
	}
}

func TestFinalizers_patchesFailWhenTheListHasChanged(t *testing.T) {
	with := func(f ...string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Finalizers = f }
	}
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a", with("x", "mine", "y", "also/mine")))
	api := c.Core.CoreV1().PersistentVolumes()
	seen, err := api.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := cluster.JSONPatch(cluster.RemoveFinalizers(seen, "mine", "also/mine")...)
	c.Put(volume("a", with("mine", "x", "y", "also/mine")))
	if _, err := api.Patch(t.Context(), "a", types.JSONPatchType, patch, metav1.PatchOptions{}); err == nil {
		t.Error("a patch from an old list was taken")
	}
	seen, _ = api.Get(t.Context(), "a", metav1.GetOptions{})
	patch = cluster.JSONPatch(cluster.RemoveFinalizers(seen, "mine", "also/mine")...)
	after, err := api.Patch(t.Context(), "a", types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil || !slices.Equal(after.Finalizers, []string{"x", "y"}) {
		t.Errorf("finalizers %v, %v", after.Finalizers, err)
	}
	if cluster.RemoveFinalizers(after, "mine") != nil || cluster.AddFinalizers(after, "x") != nil {
		t.Error("a patch where nothing is to be changed")
	}
}

func TestSet_suppressesHandlersUntilNotify(t *testing.T) {
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	c := apiserver.New(t, csidriver.New("memory.test"), volume("a"), content)
	var volumesSeen, contentsSeen atomic.Int32
	volumes, contents := c.Env.Set.Volumes(), c.Env.Set.Contents()
	volumes.OnChange(func(_, _ *corev1.PersistentVolume) { volumesSeen.Add(1) })
	contents.OnChange(func(_, _ *snapshotv1.VolumeSnapshotContent) { contentsSeen.Add(1) })
	c.Env.Set.Suppress()
	c.Start()
	c.Add(volume("gone"))
	c.Delete(volume("gone"))
	c.Add(volume("b")) // the last of all
	c.Eventually(func() error {
		if _, found := volumes.Get("b"); !found || len(volumes.List()) != 2 || len(contents.List()) != 1 {
			return errors.New("the caches are not filled")
		}
		return nil
	})
	if volumesSeen.Load()+contentsSeen.Load() != 0 {
		t.Error("handlers are called in a standby")
	}
	if err := c.Env.Set.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := volumesSeen.Load(); n != 2 {
		t.Errorf("handlers saw %d of two volumes when Notify returned", n)
	}
	c.Add(volume("c"))
	c.Eventually(func() error {
		if volumesSeen.Load() != 3 || contentsSeen.Load() != 1 {
			return fmt.Errorf("saw %d volumes and %d contents", volumesSeen.Load(), contentsSeen.Load())
		}
		return nil
	})
}
