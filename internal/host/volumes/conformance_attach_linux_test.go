package volumes

import (
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func (w *world) attachments() (all []*storagev1.VolumeAttachment) {
	w.t.Helper()
	if err := w.store.View(func(tx *store.Tx) (err error) {
		all, err = tx.Attachments().All()
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func attachRequired(required bool) func(*storagev1.CSIDriverSpec) {
	return func(spec *storagev1.CSIDriverSpec) { spec.AttachRequired = &required }
}

// A driver whose object says attachRequired: false gets no ControllerPublishVolume.
func TestAttach_notForADriverWithoutAttachment(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.object(attachRequired(false))
	w.ensured("a")
	w.mount(w.create(pod("web", "a")))
	if n := w.driver.Count("ControllerPublishVolume"); n != 0 || len(w.attachments()) != 0 {
		t.Errorf("attached %d times, objects %v", n, w.attachments())
	}
}

// With and without the driver's object, a VolumeAttachment says
// where the volume is attached, for as long as it is.
func TestAttach_hasItsObject(t *testing.T) {
	for _, object := range []bool{true, false} {
		w, a := newServing(t, attaching)
		if object {
			w.object(attachRequired(true))
		}
		found := w.bound(w.ensured("a"))
		p := w.create(pod("web", "a"))
		w.mount(p)
		all := w.attachments()
		handle := found.volume.Spec.CSI.VolumeHandle
		if len(all) != 1 || all[0].Name != claim.AttachmentName(handle, "d.example", "here") || !all[0].Status.Attached ||
			all[0].Status.AttachmentMetadata["device"] != "1" || all[0].Spec.NodeName != "here" || *all[0].Spec.Source.PersistentVolumeName != found.volume.Name {
			t.Errorf("objects %+v", all)
		}
		if got := one[*csi.NodeStageVolumeRequest](t, a).GetPublishContext()["device"]; got != "1" {
			t.Errorf("staged with context %q", got)
		}
		w.unmount(p)
		if all := w.attachments(); len(all) != 0 {
			t.Errorf("left: %+v", all)
		}
		w.isIdle()
	}
}

// The claim of a generic ephemeral volume is attached, and
// counts against the limit, as any other.
func TestAttach_genericEphemeralVolumes(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.client.Node.MaxVolumes = 1
	p := pod("web", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	yes := true
	w.create(p)
	w.ensured("web-data", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: p.UID, Controller: &yes}}
	})
	w.ensured("b")
	other := w.create(pod("other", "b"))
	w.mount(p)
	if len(w.attachments()) != 1 {
		t.Errorf("objects %v", w.attachments())
	}
	w.refused(other, "takes 1 volumes")
	w.unmount(p)
	w.mount(other)
	w.refused(w.create(p), "takes 1 volumes")
}

// A claim of the right name that another owner made is not used.
func TestEphemeral_aClaimOfAnotherIsNotAdopted(t *testing.T) {
	w, _ := newServing(t)
	p := pod("web", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	w.ensured("web-data")
	w.refused(w.create(p), "was not made for this pod")
}

// An attached volume is detached even if the CSIDriver object has changed since.
func TestAttach_isUndoneAfterTheDriversObjectChanged(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.object(attachRequired(true))
	w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.object(attachRequired(false))
	w.unmount(p)
	if n := w.driver.Count("ControllerUnpublishVolume"); n != 1 || len(w.attachments()) != 0 {
		t.Errorf("detached %d times, objects %v", n, w.attachments())
	}
	w.isIdle()
}

// Without its credentials, a driver may answer that the volume is not attached.
func TestAttach_isUndoneWithoutItsSecretOnlyIfAnAdministratorSaysSo(t *testing.T) {
	for _, annotated := range []bool{false, true} {
		w, a := newServing(t, attaching)
		key := w.ensured("a")
		w.secret("secrets", "attach", "for attach")
		w.volume(key, func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "secrets", Name: "attach"}
		})
		p := w.create(pod("web", "a"))
		w.mount(p)
		w.put(func(tx *store.Tx) error { return tx.Secrets().Delete("secrets/attach") })
		if err := w.tryUnmount(p); !errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), claim.DeleteWithoutSecretAnnotation+"=true") {
			t.Fatalf("detached without its secret: %v", err)
		}
		if n := w.driver.Count("ControllerUnpublishVolume"); n != 0 {
			t.Errorf("%d calls without the secret", n)
		}
		want := "for attach"
		if annotated {
			want = ""
			w.volume(key, func(pv *corev1.PersistentVolume) {
				metav1.SetMetaDataAnnotation(&pv.ObjectMeta, claim.DeleteWithoutSecretAnnotation, "true")
			})
		} else {
			w.secret("secrets", "attach", want)
		}
		w.unmount(p)
		if got := one[*csi.ControllerUnpublishVolumeRequest](t, a).GetSecrets()["v"]; got != want {
			t.Errorf("the secret is %q, want %q", got, want)
		}
		w.isIdle()
	}
}

// A pod that cannot be attached comes up when the driver's object says
// that it need not be.
func TestAttach_aPodStartsWhenAttachmentIsNotNeededAnyMore(t *testing.T) {
	w, a := newServing(t, attaching)
	a.fail = failures("ControllerPublishVolume", codes.Internal, 100)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	if _, err := w.manager.MountPod(t.Context(), p); err == nil {
		t.Fatal("mounted")
	}
	all := w.attachments()
	if len(all) != 1 || all[0].Status.AttachError == nil || *all[0].Status.AttachError.ErrorCode != int32(codes.Internal) {
		t.Fatalf("objects %+v", all)
	}
	version := w.version()
	if _, err := w.manager.MountPod(t.Context(), p); err == nil || w.version() != version {
		t.Errorf("a failure that repeats writes each time (%v)", err)
	}
	w.object(attachRequired(false))
	w.mount(p)
	w.unmount(p)
	w.isIdle()
}

// A volume above the limit waits and says why, before the driver is called; when
// another is detached, it is attached.
func TestLimit_isCheckedBeforeTheDriverIsCalled(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.client.Node.MaxVolumes = 2
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		w.ensured(name)
		pods = append(pods, w.create(pod("pod-"+name, name)))
	}
	w.mount(pods[0])
	w.mount(pods[1])
	w.refused(pods[2], "takes 2 volumes")
	_, err := w.manager.MountPod(t.Context(), pods[2])
	var waiting *Waiting
	if !errors.As(err, &waiting) || len(waiting.On) != 2 || !errors.Is(err, ErrWaiting) {
		t.Errorf("waits for %+v", err)
	}
	w.unmount(pods[0])
	w.mount(pods[2])
}
