package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

func TestDetach_writesOnce(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1")
	w := newWorld(t, volume("pv"), node("n1"), va)
	w.driver.SetAttached("handle-pv", "id-n1", true)
	w.run()
	w.detaches(va)
	w.wroteOnly("patch volumeattachments")
}

func TestDetach_needsNothingButTheAttachment(t *testing.T) {
	// The volume was removed by force and the node is deleted; the attachment names
	// the secret.
	va := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Annotations[SecretNameAnnotation], va.Annotations[SecretNamespaceAnnotation] = "keys", "ns"
	})
	w := newWorld(t, va, apiserver.Secret("ns", "keys", map[string]string{"key": "value"}))
	w.driver.SetAttached("handle-pv", "id-n1", true)
	unpublished := requests[*csi.ControllerUnpublishVolumeRequest](w, "ControllerUnpublishVolume")
	w.run()
	w.Delete(va)
	w.gone("va")
	if got := next(t, unpublished); got.GetSecrets()["key"] != "value" {
		t.Errorf("the driver got %v", got)
	}
	w.published(nil)
}

// Without its credentials a driver may answer that nothing is attached.
func TestDetach_waitsForItsSecretUntilAnAdministratorDecides(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Annotations[SecretNameAnnotation], va.Annotations[SecretNamespaceAnnotation] = "keys", "ns"
	})
	w := newWorld(t, va)
	w.driver.SetAttached("handle-pv", "id-n1", true)
	w.run()
	w.Delete(va)
	w.Eventually(func() error {
		current := w.attachment("va")
		if current.Status.DetachError == nil || !strings.Contains(current.Status.DetachError.Message, claim.DeleteWithoutSecretAnnotation+"=true") {
			return fmt.Errorf("detachError: %+v", current.Status.DetachError)
		}
		return nil
	})
	if n := w.driver.Count("ControllerUnpublishVolume"); n != 0 {
		t.Errorf("%d calls without the secret", n)
	}
	patch := cluster.MergePatch(map[string]any{"metadata": map[string]any{"annotations": map[string]string{claim.DeleteWithoutSecretAnnotation: "true"}}})
	if _, err := w.Core.StorageV1().VolumeAttachments().Patch(t.Context(), "va", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone("va")
	w.published(nil)
}

func TestDetach_servesAttachmentsOfExternalAttacher(t *testing.T) {
	upstream := func(va *storagev1.VolumeAttachment) { delete(va.Annotations, HandleAnnotation) }
	t.Run("whose node is gone", func(t *testing.T) {
		va := publishedAttachment("va", "pv", "n1", upstream)
		w := newWorld(t, volume("pv"), va)
		w.driver.SetAttached("handle-pv", "id-n1", true)
		w.run()
		w.detaches(va)
	})
	t.Run("whose node is not named", func(t *testing.T) {
		va := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.Annotations = nil })
		w := newWorld(t, volume("pv"), node("n1"), va)
		w.driver.SetAttached("handle-pv", "id-n1", true)
		w.run()
		w.detaches(va)
	})
	t.Run("whose volume is gone", func(t *testing.T) {
		va := publishedAttachment("va", "pv", "n1", upstream)
		w := newWorld(t, node("n1"), va)
		w.run()
		w.Delete(va)
		if shown := w.fails("va"); !strings.Contains(shown.Message, "remove the finalizer "+finalizer+" from") {
			t.Errorf("shown: %s", shown.Message)
		}
	})
}

func TestDetach_recordsTheVolumeWhenItIsDeletedUnderAnAttachmentOfExternalAttacher(t *testing.T) {
	pv := volume("pv")
	pv.Finalizers = []string{finalizer}
	va := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) { delete(va.Annotations, HandleAnnotation) })
	w := newWorld(t, pv, node("n1"), va)
	w.run()
	w.Delete(pv)
	w.Eventually(func() error {
		return mustContain(w.attachment("va").Annotations[HandleAnnotation], "handle-pv")
	})
	if len(w.volume("pv").Finalizers) != 1 {
		t.Error("the volume was released while it is attached")
	}
}

func TestDetach_releasesWhatWasNeverPublished(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.run()
	va := attachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Finalizers = []string{"example.com/other"}
		deleting(va)
	})
	w.Add(va, attachment("last", "pv", "n1"))
	w.attached("last")
	if slices.Contains(w.driver.Calls(), "ControllerUnpublishVolume") {
		t.Error("the driver was called")
	}
}

func TestDetach_writesTheStatusIfOtherFinalizersKeepTheAttachment(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Finalizers = []string{"example.com/a", finalizer, "example.com/b"}
		va.Status.AttachmentMetadata = map[string]string{"device": "1"}
	})
	w := newWorld(t, volume("pv"), node("n1"), va)
	w.run()
	w.Delete(va)
	w.Eventually(func() error {
		va := w.attachment("va")
		if va.Status.Attached || len(va.Status.AttachmentMetadata) > 0 || !slices.Equal(va.Finalizers, []string{"example.com/a", "example.com/b"}) {
			return fmt.Errorf("still %+v %q", va.Status, va.Finalizers)
		}
		return nil
	})
}

func TestDetach_ofADriverThatHasNothingToAttachAnyMoreRemovesItsFinalizers(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1")
	pv := volume("pv")
	pv.Finalizers = []string{finalizer}
	w := newWorld(t, pv, node("n1"), va)
	w.driver.Controller = nil
	w.run()
	w.Delete(va)
	w.gone("va")
	w.Delete(pv)
	w.volumeGone("pv")
	if calls := w.driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
}

func TestDetach_waitsForAnAttachmentInProgress(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	publishing, publish := make(chan struct{}), make(chan struct{})
	w.driver.Before = block("ControllerPublishVolume", publishing, publish)
	c := New(w.Env, Options{Reconcile: -1})
	w.Run(w.Env, c)
	va := attachment("va", "pv", "n1")
	w.Add(va)
	<-publishing
	w.Delete(va)
	w.Eventually(func() error {
		if va, _ := c.attachments.Get("va"); va.DeletionTimestamp == nil {
			return errors.New("the controller does not know of the deletion yet")
		}
		return nil
	})
	if w.driver.Count("ControllerUnpublishVolume") > 0 {
		t.Error("it was unpublished while it was being published")
	}
	close(publish)
	w.gone("va")
	w.published(nil)
	if calls := w.driver.Calls(); !slices.Equal(calls, []string{"ControllerPublishVolume", "ControllerUnpublishVolume"}) {
		t.Errorf("calls %q", calls)
	}
}

func TestDetach_undoesAnAttachmentThatIsRemovedByForceWhileItIsPublished(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	publishing, publish := make(chan struct{}), make(chan struct{})
	w.driver.Before = block("ControllerPublishVolume", publishing, publish)
	c := New(w.Env, Options{Reconcile: -1})
	w.Run(w.Env, c)
	va := attachment("va", "pv", "n1")
	w.Add(va)
	<-publishing
	w.Delete(va)
	forced := w.attachment("va")
	forced.Finalizers = nil
	if _, err := w.Core.StorageV1().VolumeAttachments().Update(t.Context(), forced, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Eventually(func() error {
		if _, found := c.attachments.Get("va"); found {
			return errors.New("the controller does not know yet")
		}
		return nil
	})
	close(publish)
	w.Eventually(func() error {
		if published := w.driver.Attachments(); len(published) > 0 || w.driver.Count("ControllerUnpublishVolume") == 0 {
			return fmt.Errorf("still published: %v", published)
		}
		return nil
	})
}

func TestVolume_keepsTheFinalizerUntilItIsDeletedDetachedAndDeprovisioned(t *testing.T) {
	pv := volume("pv")
	pv.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer", finalizer}
	va := publishedAttachment("va", "pv", "n1")
	w := newWorld(t, pv, node("n1"), va)
	w.run()
	w.Delete(pv)
	w.Delete(va)
	w.gone("va")
	last := attachment("last", "other", "n1")
	w.Add(volume("other"), last)
	w.attached("last")
	if got := w.volume("pv").Finalizers; len(got) != 2 {
		t.Fatalf("finalizers %q while the provisioner still works on it", got)
	}
	w.Delete(last)
	w.gone("last")
	if got := w.volume("other").Finalizers; !slices.Equal(got, []string{finalizer}) {
		t.Errorf("finalizers %q of a volume that is not deleted", got)
	}
	provisioned := w.volume("pv")
	provisioned.Finalizers = []string{finalizer}
	if _, err := w.Core.CoreV1().PersistentVolumes().Update(t.Context(), provisioned, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.volumeGone("pv")
}

func TestVolume_isReleasedWhenItsMigrationIsReverted(t *testing.T) {
	pv := volume("pv")
	pv.Finalizers = []string{finalizer}
	pv.Spec.CSI = nil
	pv.Annotations = map[string]string{migration.MigratedToAnnotation: driverName}
	w := newWorld(t, pv)
	w.run()
	back := w.volume("pv")
	back.Annotations = nil
	if _, err := w.Core.CoreV1().PersistentVolumes().Update(t.Context(), back, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Eventually(func() error {
		if got := w.volume("pv").Finalizers; len(got) > 0 {
			return fmt.Errorf("finalizers %q", got)
		}
		return nil
	})
}
