package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
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
	w.removeByForce(va)
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

// removeByForce removes an attachment with its finalizers. The driver must not unpublish it
// meanwhile.
func (w *world) removeByForce(va *storagev1.VolumeAttachment) {
	w.t.Helper()
	w.Delete(va)
	w.Eventually(func() error {
		forced := w.attachment(va.Name)
		forced.Finalizers = nil
		_, err := w.Core.StorageV1().VolumeAttachments().Update(w.t.Context(), forced, metav1.UpdateOptions{})
		return err
	})
}

// TestDetach_undoesWhatAFailedCallMayHavePublished: the driver publishes the volume and its
// answer is lost. The attachment is removed by force; what was published is unpublished, however
// often that fails.
func TestDetach_undoesWhatAFailedCallMayHavePublished(t *testing.T) {
	for name, down := range map[string]bool{"which the watch tells": false, "which the next write tells": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, volume("pv"), node("n1"))
			var broken, removed atomic.Bool
			w.React("watch", "volumeattachments", func(apiserver.Request) error {
				if broken.Load() {
					return apierrors.NewServiceUnavailable("down")
				}
				return nil
			})
			var unpublished atomic.Int32
			w.driver.Before = func(_ context.Context, rpc string, _ any) error {
				if rpc == "ControllerUnpublishVolume" && (!removed.Load() || unpublished.Add(1) <= 2) {
					return csidriver.Fail(codes.Unavailable, "busy")
				}
				return nil
			}
			w.driver.After = times(100, "ControllerPublishVolume", csidriver.Fail(codes.Unavailable, "connection lost"))
			w.run()
			va := attachment("va", "pv", "n1")
			w.Add(va)
			w.fails("va")
			broken.Store(down)
			w.BreakWatches()
			w.removeByForce(va)
			removed.Store(true)
			w.Eventually(func() error {
				if published := w.driver.Attachments(); len(published) > 0 || unpublished.Load() < 3 {
					return fmt.Errorf("still published: %v", published)
				}
				return nil
			})
		})
	}
}

// TestDetach_leavesWhatTheStatusRecordsToWhoRemovesItByForce: only the answer to the write of the
// status was lost.
func TestDetach_leavesWhatTheStatusRecordsToWhoRemovesItByForce(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	var lost atomic.Bool
	w.LoseAnswers("patch", "volumeattachments", func(q apiserver.Request) error {
		if q.Subresource == "status" && !lost.Swap(true) {
			return errors.New("etcdserver: request timed out")
		}
		return nil
	})
	detaching, detach := make(chan struct{}), make(chan struct{})
	blocked := block("ControllerUnpublishVolume", detaching, detach)
	w.driver.Before = func(ctx context.Context, rpc string, request any) error {
		if err := blocked(ctx, rpc, request); err != nil || rpc != "ControllerUnpublishVolume" {
			return err
		}
		return csidriver.Fail(codes.Unavailable, "busy")
	}
	c := New(w.Env, Options{Reconcile: -1})
	w.Run(w.Env, c)
	va := attachment("va", "pv", "n1")
	w.Add(va)
	w.attached("va")
	w.Eventually(func() error {
		if _, ok := c.begun.of("va"); ok {
			return errors.New("the controller does not know yet that the status was written")
		}
		return nil
	})
	w.Delete(va)
	<-detaching // the call of the deletion, which fails once the attachment is gone
	w.removeByForce(va)
	w.Eventually(func() error {
		if _, found := c.attachments.Get("va"); found {
			return errors.New("the controller does not know yet")
		}
		return nil
	})
	close(detach)
	w.Never(200*time.Millisecond, func() error {
		if n := w.driver.Count("ControllerUnpublishVolume"); n > 1 {
			return fmt.Errorf("it is unpublished, by %d calls", n)
		}
		return nil
	})
}

// TestDetach_undoesAPublicationBeforeItIsPublishedForALaterAttachment: a VolumeAttachment of the
// same name, which a pod on the same node needs, is made at once.
func TestDetach_undoesAPublicationBeforeItIsPublishedForALaterAttachment(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	var down atomic.Bool
	down.Store(true)
	fail := func(_ context.Context, rpc string, _ any) error {
		if down.Load() && strings.HasPrefix(rpc, "Controller") && strings.HasSuffix(strings.ToLower(rpc), "publishvolume") {
			return csidriver.Fail(codes.Unavailable, "connection lost")
		}
		return nil
	}
	w.driver.Before, w.driver.After = func(ctx context.Context, rpc string, request any) error {
		if rpc == "ControllerUnpublishVolume" {
			return fail(ctx, rpc, request)
		}
		return nil
	}, fail
	w.run()
	va := attachment("va", "pv", "n1")
	w.Add(va)
	w.fails("va")
	w.removeByForce(va)
	again := attachment("va", "pv", "n1")
	again.UID = "again"
	w.Add(again)
	if err := mustContain(w.fails("va").Message, "an earlier VolumeAttachment of this name was removed by force"); err != nil {
		t.Error(err)
	}
	down.Store(false)
	w.attached("va")
	w.published(map[string][]string{"handle-pv": {"id-n1"}})
	calls := w.driver.Calls()
	if last := calls[len(calls)-2:]; !slices.Equal(last, []string{"ControllerUnpublishVolume", "ControllerPublishVolume"}) {
		t.Errorf("calls %q", calls)
	}
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
