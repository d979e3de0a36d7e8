package provision

import (
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

const otherDriver = "other.example"

// TestProtection_ofAnotherDriversCopies: each driver's provisioner keeps and
// lets go what it copies; the finalizers have no driver in their names.
func TestProtection_ofAnotherDriversCopies(t *testing.T) {
	foreign := func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations[provisionerAnnotation] = otherDriver
		pvc.Finalizers = append(pvc.Finalizers, lifecycle.CloneFinalizer)
	}
	source := bound("src")
	foreign(source[0].(*corev1.PersistentVolumeClaim))
	source[1].(*corev1.PersistentVolume).Spec.CSI.Driver = otherDriver
	restored, content := newSnapshot("restored")
	restored.Finalizers, content.Spec.Driver = []string{lifecycle.RestoreFinalizer}, otherDriver
	// Its provisioner may still work for a claim that is gone.
	quiet, quietContent := newSnapshot("quiet")
	quiet.Finalizers, quietContent.Spec.Driver = []string{lifecycle.RestoreFinalizer}, otherDriver
	w := newWorld(t, append(source, newClass(), restored, content, quiet, quietContent,
		newClaim("copy", foreign, cloneOf("src")), newClaim("restore", foreign, restoreOf("restored")))...)
	w.run(withSnapshots)
	w.Never(200*time.Millisecond, func() error {
		if !has(w.claimNow("src").Finalizers, lifecycle.CloneFinalizer) {
			return errors.New("the source of another driver's clone is let go")
		}
		for _, name := range []string{"restored", "quiet"} {
			if !has(w.snapshotNow(name).Finalizers, lifecycle.RestoreFinalizer) {
				return errors.New("another driver's snapshot is let go: " + name)
			}
		}
		return nil
	})
}

func TestProtection_endsWithASourceWhoseVolumeIsGone(t *testing.T) {
	source := newClaim("src", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.VolumeName, p.Status.Phase = "pvc-uid-src", corev1.ClaimLost
		p.Finalizers = []string{lifecycle.CloneFinalizer}
	})
	for name, start := range map[string]func(*world){
		"centrally": func(w *world) { w.run() },
		"on a node": func(w *world) { w.onItsOwn("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := nodesWorld(t, newClass(), "a")
			w.Add(source)
			start(w)
			w.Delete(source)
			w.Eventually(func() error {
				if w.claimNow("src") != nil {
					return errors.New("the claim cannot go")
				}
				return nil
			})
		})
	}
}

// TestProtection_ofASnapshotWithoutContent: no claim can be made of it any more.
func TestProtection_ofASnapshotWithoutContent(t *testing.T) {
	snapshot, _ := newSnapshot("s")
	snapshot.Finalizers = []string{lifecycle.RestoreFinalizer}
	w := newWorld(t, newClass(), snapshot)
	w.run(withSnapshots)
	w.Delete(snapshot)
	w.Eventually(func() error {
		if w.snapshotNow("s") != nil {
			return errors.New("the snapshot cannot go")
		}
		return nil
	})
}

// TestNode_leavesAnotherNodesVolumeAlone: a driver whose nodes share their
// storage, and which answers with what another node has made for the claim.
func TestNode_leavesAnotherNodesVolumeAlone(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "a", "b")
	w.Driver.Creation.Strict = false
	w.onItsOwn("b")
	w.Add(newClaim("x", onNode("b")))
	pv := w.saved("pvc-uid-x")
	env := w.NewEnv()
	env.Scope = cluster.Scope{Node: "a", Segments: map[string]string{"node": "a"}}
	controller := New(env, Options{})
	w.Run(env, controller)
	left := volumeIntent{Volume: newVolume("x", func(pv *corev1.PersistentVolume) { pv.ObjectMeta = metav1.ObjectMeta{Name: "pvc-uid-x"} })}
	w.Eventually(func() error {
		if _, found := controller.volumes.Get("pvc-uid-x"); !found {
			return errors.New("not seen yet")
		}
		return nil
	})
	answer := w.Driver.Volume(pv.Name)
	answer.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"node": "b"}}}
	if err := controller.accept(w.Context(), left, true, w.Driver.Request(pv.Name), answer); err == nil {
		t.Error("a volume of another node is taken")
	}
	if n := w.Driver.Count("DeleteVolume"); n != 0 {
		t.Error("the volume of another node is deleted")
	}
}
