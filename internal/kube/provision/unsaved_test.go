package provision

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

var persistentVolumes = schema.GroupResource{Resource: "persistentvolumes"}

func soon(_ *cluster.Env, o *Options) { o.SlowRetry = 10 * time.Millisecond }

// quarantined expects an event with the texts, that the volume stays, and that the
// intent is kept and counted.
func (w *world) quarantined(c *Controller, texts ...string) {
	w.t.Helper()
	w.event(texts...)
	w.Eventually(func() error {
		if c.quarantined() != 1 || w.stored() != 1 {
			return fmt.Errorf("%d intents are quarantined, %d stored", c.quarantined(), w.stored())
		}
		return nil
	})
	w.volumeStays()
}

// volumeStays expects the one volume, and no call to delete it.
func (w *world) volumeStays() {
	w.t.Helper()
	if volumes := w.Driver.Volumes(); volumes["pvc-uid-a"] == "" || w.Driver.Count("DeleteVolume") > 0 {
		w.t.Errorf("the volume is deleted: volumes %v, calls %v", volumes, w.Driver.Calls())
	}
}

// restoredElsewhere ends node n1 after it created the PersistentVolume and before it
// removed the intent. An administrator restores the data on n2, and creates the
// PersistentVolume again for that.
func restoredElsewhere(t *testing.T, pvc *corev1.PersistentVolumeClaim) *world {
	w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
	w.crashAs("create/saved", onNodes("n1"), func() { w.Add(pvc) })
	pv := w.pv("pvc-uid-a")
	w.remove(pv)
	pv = pv.DeepCopy()
	pv.UID, pv.ResourceVersion = "again", ""
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	pv.Spec.CSI.VolumeHandle = "restored-on-n2"
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"n2"}
	w.Put(pv)
	return w
}

// TestReplay_deletesNothingOnceThePersistentVolumeMayExist: another PersistentVolume
// has its name now. The volume may hold the only copy of the data.
func TestReplay_deletesNothingOnceThePersistentVolumeMayExist(t *testing.T) {
	t.Run("the claim is bound to the other one", func(t *testing.T) {
		t.Parallel()
		pvc := newClaim("a", onNode("n1"))
		w := restoredElsewhere(t, pvc)
		pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-uid-a", corev1.ClaimBound
		w.Put(pvc)
		w.run(onNodes("n1"))
		w.stays("id-pvc-uid-a")
		w.event("Warning VolumeRetained ns/a", `"pvc-uid-a"`, "delete it in the storage")
	})
	t.Run("the claim is not bound", func(t *testing.T) {
		t.Parallel()
		w := restoredElsewhere(t, newClaim("a", onNode("n1")))
		c, _ := w.run(onNodes("n1"), soon)
		w.quarantined(c, "Warning ProvisioningFailed ns/a", "another node was first", `volume "id-pvc-uid-a" is not deleted`, "remove entry uid-a")
	})
	t.Run("the claim is deleted", func(t *testing.T) {
		t.Parallel()
		pvc := newClaim("a", onNode("n1"))
		w := restoredElsewhere(t, pvc)
		w.Delete(pvc)
		c, _ := w.run(onNodes("n1"), soon)
		w.quarantined(c, "Warning ProvisioningFailed ns/a", `volume "id-pvc-uid-a" is not deleted`, "remove entry uid-a")
		w.remove(w.pv("pvc-uid-a")) // the name is free
		w.retained("a")
	})
}

// TestReplay_createsNothingForALostClaim: the claim was bound to a PersistentVolume
// of another node, which is gone. A blank volume must not take its place.
func TestReplay_createsNothingForALostClaim(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
	pvc := newClaim("a", onNode("n1"))
	w.crashAs("create/called", onNodes("n1"), func() { w.Add(pvc) })
	pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-uid-a", corev1.ClaimLost
	w.Put(pvc)
	w.run(onNodes("n1"))
	w.stays("id-pvc-uid-a")
	w.event("Warning VolumeRetained ns/a", `"pvc-uid-a"`)
	if pv := w.pv("pvc-uid-a"); pv != nil || w.Driver.Count("CreateVolume") != 1 {
		t.Errorf("a PersistentVolume is created for a lost claim: %v; calls %v", pv, w.Driver.Calls())
	}
}

// TestReplay_thePersistentVolumeIsRefused: a process before may have created it. The
// API server refuses it now, for good. The volume and its intent stay, and the event
// names what to do; removing the intent is the administrator's decision.
func TestReplay_thePersistentVolumeIsRefused(t *testing.T) {
	kind := schema.GroupKind{Kind: "PersistentVolume"}
	for name, err := range map[string]error{
		"as invalid":   apierrors.NewInvalid(kind, "pvc-uid-a", nil),
		"as forbidden": apierrors.NewForbidden(persistentVolumes, "pvc-uid-a", errors.New("by a policy")),
	} {
		refused := func(t *testing.T) (*world, *corev1.PersistentVolumeClaim) {
			t.Parallel()
			w, pvc := newWorld(t, newClass()), newClaim("a")
			w.crash("create/saving", func() { w.Add(pvc) })
			w.React("create", "persistentvolumes", func(apiserver.Request) error { return err })
			return w, pvc
		}
		t.Run(name+", the claim stays", func(t *testing.T) {
			w, _ := refused(t)
			c, _ := w.run(soon)
			w.quarantined(c, "Warning ProvisioningFailed ns/a", `volume "id-pvc-uid-a" is not deleted`, "remove entry uid-a")
		})
		t.Run(name+", the claim is deleted", func(t *testing.T) {
			w, pvc := refused(t)
			w.Delete(pvc)
			c, _ := w.run(soon)
			w.quarantined(c, "Warning ProvisioningFailed ns/a", `volume "id-pvc-uid-a" is not deleted`, "remove entry uid-a")
			w.editIntents(func(entries map[string]string) { clear(entries) })
			w.Eventually(func() error {
				if c.intents.Len() > 0 {
					return errors.New("the intent is still known")
				}
				return nil
			})
			w.volumeStays()
		})
	}
}

// TestSave_readsBackBeforeARefusalCounts: the client repeats a request of its own
// accord after some answers, and shows the last answer alone. The first request may
// have created the object that the last one was not allowed to.
func TestSave_readsBackBeforeARefusalCounts(t *testing.T) {
	w := newWorld(t, newClass(), newClaim("a"))
	var creations atomic.Int32
	w.LoseAnswers("create", "persistentvolumes", func(apiserver.Request) error {
		if creations.Add(1) > 1 {
			return nil
		}
		return apierrors.NewForbidden(persistentVolumes, "pvc-uid-a", errors.New("quota exceeded"))
	})
	w.run()
	w.complete(1)
	w.event("Normal ProvisioningSucceeded ns/a")
	for _, event := range w.Events() {
		if strings.Contains(event, "ProvisioningFailed") {
			t.Errorf("the PersistentVolume exists, and an event says otherwise: %s", event)
		}
	}
}
