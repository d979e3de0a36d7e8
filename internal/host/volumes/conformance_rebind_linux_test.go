package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// rebound is a claim of a retained volume that an earlier claim had grown, while
// no pod used it.
func rebound(t *testing.T, change ...func(*csidriver.Driver)) (d *daemon, key, volume string) {
	t.Helper()
	d = newDaemon(t, change...)
	t.Cleanup(d.unmountAll)
	first := d.claim("first", protected)
	volume = d.isBound(first).Name
	p := d.create(pod("web", "first"))
	d.mount(p)
	d.unmount(p)
	d.put(func(tx *store.Tx) error {
		pv := get(t, tx.Volumes(), volume)
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		return tx.Volumes().Put(volume, pv)
	})
	d.wants(first, func(p *corev1.PersistentVolumeClaim) { p.Spec.Resources.Requests = sizeList("6Gi") })
	d.until("the volume has grown", func(tx *store.Tx) bool {
		size := sizeOf(get(t, tx.Volumes(), volume))
		return size.String() == "6Gi"
	})
	d.erase(claimResource, first)
	d.until("the volume is released", func(tx *store.Tx) bool {
		return get(t, tx.Volumes(), volume).Status.Phase == corev1.VolumeReleased
	})
	d.put(func(tx *store.Tx) error {
		pv := get(t, tx.Volumes(), volume)
		pv.Spec.ClaimRef = nil
		return tx.Volumes().Put(volume, pv)
	})
	key = d.claim("second", protected, grow("6Gi"), func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = volume })
	d.isBound(key)
	return d, key, volume
}

// The claim has the size of the filesystem, which grows for the first pod.
func TestGrow_completesTheExpansionOfAnEarlierClaim(t *testing.T) {
	d, key, volume := rebound(t)
	if state, capacity := d.resize(key); state != corev1.PersistentVolumeClaimNodeResizePending || capacity != "1Gi" {
		t.Errorf("the new claim has %s, %s", state, capacity)
	}
	d.mount(d.create(pod("web2", "second")))
	if n := d.driver.Count("NodeExpandVolume"); n != 1 {
		t.Errorf("the filesystem was grown %d times", n)
	}
	if state, capacity := d.resize(key); state != "" || capacity != "6Gi" {
		t.Errorf("the claim has %s, %s", state, capacity)
	}
	pvc, pv := d.bound(key).claim, d.bound(key).volume
	if claim.Condition(pvc, corev1.PersistentVolumeClaimFileSystemResizePending) != nil {
		t.Errorf("conditions %v", pvc.Status.Conditions)
	}
	if _, marked := pv.Annotations[claim.PreResizeAnnotation]; marked || pv.Name != volume {
		t.Errorf("%s has %v", pv.Name, pv.Annotations)
	}
	if n := d.driver.Count("ControllerExpandVolume"); n != 1 {
		t.Errorf("the volume was grown %d times", n)
	}
}

// A volume without an expansion on the node has its new size at once.
func TestGrow_aReboundVolumeThatWasGrownWhollyHasItsSize(t *testing.T) {
	d, key, _ := rebound(t, func(driver *csidriver.Driver) { driver.Changes.NoNodeExpansion = true })
	if state, capacity := d.resize(key); state != "" || capacity != "6Gi" {
		t.Errorf("the new claim has %s, %s", state, capacity)
	}
}
