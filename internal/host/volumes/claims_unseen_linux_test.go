package volumes

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// A repaired or restored store may lack claims that a user has. Their volumes must
// not be deleted because of that.
func TestVolumes_whoseClaimIsMissingAreKept(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	pv := d.isBound(key)
	d.stop()
	d.put(func(tx *store.Tx) error { return tx.Claims().Delete(key) })
	d.start("")
	d.awaitEvent(reasonClaimMissing, "the volume is kept")
	d.until("it is failed", func(tx *store.Tx) bool { return get(t, tx.Volumes(), pv.Name).Status.Phase == corev1.VolumeFailed })
	d.erase(volumeResource, pv.Name)
	d.isGone(volumeResource, pv.Name)
	if volumes, _ := d.driver.Left(); volumes != 1 {
		t.Errorf("%d volumes are left", volumes)
	}
}

func TestVolumes_stayUntilTheyAreDetached(t *testing.T) {
	d := newDaemon(t)
	empty := ""
	d.driver.AddVolume("h-kept", 1<<30)
	d.volume(volumeOf("kept", "1Gi", ""))
	key := d.claim("data", protected, func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = &empty })
	pv := d.isBound(key)
	use := newUse(pv)
	use.Stage, use.LastPod = store.PhaseUndoing, "pod-gone"
	d.put(func(tx *store.Tx) error { return tx.Uses().Put(use.Name, use) })
	d.erase(claimResource, key)
	d.isGone(claimResource, key)
	d.erase(volumeResource, "kept")
	d.awaitEvent("VolumeFailedDelete", "still in use")
	d.put(func(tx *store.Tx) error { return tx.Uses().Delete(use.Name) })
	d.isGone(volumeResource, "kept")
}

func TestClaims_thatAreLostBindToTheirVolumeAgain(t *testing.T) {
	d := newDaemon(t)
	empty := ""
	given := volumeOf("mine", "1Gi", "")
	d.volume(given.DeepCopy())
	key := d.claim("data", protected, func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = &empty })
	d.isBound(key)
	d.put(func(tx *store.Tx) error { return tx.Volumes().Delete("mine") })
	d.awaitEvent("ClaimLost", "Data on the volume is lost")
	d.volume(given.DeepCopy()) // as in the user's manifest: without claimRef
	d.isBound(key)
}

func TestClaims_thatNameTheirVolumeGetNoClass(t *testing.T) {
	d := newDaemon(t)
	d.put(func(tx *store.Tx) error {
		standard := class()
		standard.Annotations = map[string]string{defaultClassAnnotation: "true"}
		return tx.Classes().Put("fast", standard)
	})
	d.volume(volumeOf("mine", "1Gi", ""))
	key := d.claim("data", protected, func(p *corev1.PersistentVolumeClaim) {
		p.Spec.StorageClassName, p.Spec.VolumeName = nil, "mine"
	})
	d.isBound(key)
}

// A new version of a driver may have a capability that the old one lacked: its
// registration requeues the claims.
func TestModify_isTriedAgainWithADriverThatCan(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	d.attributes("gold", "d.example", map[string]string{"iops": "9"})
	d.wants(key, attributesNamed("gold"))
	d.awaitEvent("VolumeModifyFailed", "MODIFY_VOLUME")
	modifies(d.driver)
	d.serve() // the host requests capabilities once per connection
	for range 3 {
		d.set.Retry()
	}
	d.awaitEvent("VolumeModifySuccessful", "gold")
}

func TestModify_isRetriedWhenAForeignClassIsReplaced(t *testing.T) {
	d := newDaemon(t, modifies)
	key := d.claim("data", protected)
	d.isBound(key)
	d.attributes("gold", "other.example", map[string]string{"iops": "9"})
	d.wants(key, attributesNamed("gold"))
	d.awaitEvent("VolumeModifyFailed", "is for driver other.example")
	d.put(func(tx *store.Tx) error {
		return tx.AttributesClasses().Put("gold", &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "d.example", Parameters: map[string]string{"iops": "9"},
		})
	})
	d.awaitEvent("VolumeModifySuccessful", "gold")
}

// The end of a copy that failed changes no volume.
func TestReclaim_waitsAlsoForTheSourceOfACopyToChange(t *testing.T) {
	w := newWorld(t)
	w.serving("boot-1", "")
	pv := volumeOf("old", "1Gi", "fast", func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "earlier"}
		pv.Status.Phase = corev1.VolumeReleased
	})
	w.put(func(tx *store.Tx) error {
		return errors.Join(tx.Volumes().Put(pv.Name, pv),
			tx.Provisionings().Put("copy", &store.Provisioning{ClaimUID: "copy", Claim: "ns/copy", Source: dependency(claimResource, "ns/data")}))
	})
	err := w.manager.reclaim(t.Context(), pv)
	if on := strings.Join(onOf(err), " "); !strings.Contains(on, dependency(claimResource, "ns/data")) {
		t.Errorf("%v waits for %s", err, on)
	}
}

func TestIndex_isBuiltAgainAfterAnError(t *testing.T) {
	w := newWorld(t)
	w.create(pod("web", "a"))
	w.manager.index.watch = w.store.Watch(0)
	broken := errors.New("broken")
	if err := w.manager.index.keep(broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	if users, err := w.manager.index.find(podUses("ns/a")); err != nil || len(users) != 1 {
		t.Errorf("%v, %v", users, err)
	}
}

// A driver that hangs must not delay the removal of another driver's volumes.
func TestControllers_thatCallDriversHavePartitions(t *testing.T) {
	w := newWorld(t)
	for _, controller := range append(w.manager.Controllers(), w.manager.NodeControllers()...) {
		if controller.Partition == nil && controller.Name != snapshotResource &&
			controller.Name != "volumes that are published again" {
			t.Errorf("%s has none", controller.Name)
		}
	}
}

func TestMount_doesNotWaitForAChangeOfAPodThatIsGone(t *testing.T) {
	w, _ := newServing(t)
	key := w.ensured("a", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	first := w.create(pod("first", "a"))
	w.mount(first)
	second := w.create(pod("second", "a"))
	if _, err := w.manager.MountPod(t.Context(), second); !errors.Is(err, ErrWaiting) {
		t.Errorf("of %s: %v", key, err)
	}
	w.put(func(tx *store.Tx) error { return tx.Pods().Delete("ns/first") })
	if _, err := w.manager.MountPod(t.Context(), second); err == nil || errors.Is(err, ErrWaiting) {
		t.Errorf("of %s: %v", key, err)
	}
	w.unmount(first)
	w.mount(second)
	w.unmount(second)
}
