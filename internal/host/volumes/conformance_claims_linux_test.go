package volumes

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// policy changes the reclaim policy of a volume.
func (d *daemon) policy(name string, policy corev1.PersistentVolumeReclaimPolicy) {
	d.t.Helper()
	d.put(func(tx *store.Tx) error {
		pv, err := tx.Volumes().Get(name)
		if err != nil {
			return err
		}
		pv.Spec.PersistentVolumeReclaimPolicy = policy
		return tx.Volumes().Put(name, pv)
	})
}

// A volume that was made for a claim
// goes with it or stays, as the policy says by then, whichever is deleted first.
func TestReclaim_ofACreatedVolume(t *testing.T) {
	const keep, drop = corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete
	for _, test := range []struct {
		name           string
		before, policy corev1.PersistentVolumeReclaimPolicy
		volumeFirst    bool
	}{
		{"Delete, the claim first", drop, drop, false},
		{"Delete, the volume first", drop, drop, true},
		{"Retain, the claim first", keep, keep, false},
		{"Retain, the volume first", keep, keep, true},
		{"Retain, then Delete", keep, drop, false},
		{"Delete, then Retain", drop, keep, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDaemon(t)
			key := d.claim("data", protected)
			pv := d.isBound(key).Name
			d.policy(pv, test.before)
			d.policy(pv, test.policy)
			d.reclaimed(key, pv, test.policy, test.volumeFirst)
		})
	}
}

// The same for a volume that an administrator created.
func TestReclaim_ofAStaticVolume(t *testing.T) {
	const keep, drop = corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete
	for _, policy := range []corev1.PersistentVolumeReclaimPolicy{keep, drop} {
		for _, volumeFirst := range []bool{false, true} {
			d := newDaemon(t)
			d.driver.AddVolume("h-old", 1<<30)
			d.volume(volumeOf("old", "1Gi", "", func(pv *corev1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = policy }))
			key := d.claim("data", protected, func(p *corev1.PersistentVolumeClaim) { empty := ""; p.Spec.StorageClassName = &empty })
			d.isBound(key)
			d.reclaimed(key, "old", policy, volumeFirst)
			d.stop()
		}
	}
}

// reclaimed deletes a claim and its PersistentVolume, and checks the remaining volumes.
func (d *daemon) reclaimed(key, pv string, policy corev1.PersistentVolumeReclaimPolicy, volumeFirst bool) {
	d.t.Helper()
	if volumeFirst {
		d.erase(volumeResource, pv)
	}
	d.erase(claimResource, key)
	d.isGone(claimResource, key)
	if policy == corev1.PersistentVolumeReclaimDelete {
		d.hasVolumes(0)
		d.isGone(volumeResource, pv)
		return
	}
	if !volumeFirst {
		d.until("it is released", func(tx *store.Tx) bool {
			volume := get(d.t, tx.Volumes(), pv)
			return volume != nil && volume.Status.Phase == corev1.VolumeReleased
		})
		d.erase(volumeResource, pv)
	}
	d.isGone(volumeResource, pv)
	if volumes, _ := d.driver.Left(); volumes != 1 || d.driver.Count("DeleteVolume") != 0 {
		d.t.Errorf("%d volumes are left", volumes)
	}
}

// A claim gets its volume at once, or as soon as there is room.
func TestClaims_aDriverWithoutRoomIsAskedAgain(t *testing.T) {
	d := newDaemon(t, func(driver *csidriver.Driver) {
		driver.Before = failing("CreateVolume", codes.ResourceExhausted, 1)
	})
	d.isBound(d.claim("data", protected))
	if n := d.driver.Count("CreateVolume"); n != 2 {
		t.Errorf("asked %d times", n)
	}
	d.isBound(d.claim("more", protected))
}

// The claim's status has the size that is requested. A size that the driver rejects can
// be lowered.
func TestExpand_aRefusedRequestCanBeLowered(t *testing.T) {
	for _, code := range []codes.Code{codes.OutOfRange, codes.Internal} {
		d := newDaemon(t)
		key := d.claim("data", protected)
		d.isBound(key)
		d.driver.Before = func(_ context.Context, _ string, request any) error {
			if asked, ok := request.(*csi.ControllerExpandVolumeRequest); ok && asked.GetCapacityRange().GetRequiredBytes() == 9<<30 {
				return csidriver.Fail(code, "too much")
			}
			return nil
		}
		d.request(key, "9Gi")
		d.until("it is refused", func(tx *store.Tx) bool {
			pvc := get(t, tx.Claims(), key)
			size := pvc.Status.AllocatedResources[corev1.ResourceStorage]
			state := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
			return size.String() == "9Gi" && (state == corev1.PersistentVolumeClaimControllerResizeInfeasible) == (code == codes.OutOfRange) &&
				d.driver.Count("ControllerExpandVolume") > 0
		})
		d.request(key, "2Gi")
		d.until("it has grown", func(tx *store.Tx) bool {
			pv := get(t, tx.Volumes(), get(t, tx.Claims(), key).Spec.VolumeName)
			return pv.Spec.Capacity.Storage().Cmp(resource.MustParse("2Gi")) == 0
		})
		d.stop()
	}
}

// A driver that cannot expand is not called, and an event says so.
func TestExpand_byADriverThatCannotIsRefused(t *testing.T) {
	d := newDaemon(t, func(driver *csidriver.Driver) {
		driver.Controller = slices.DeleteFunc(driver.Controller, func(c csi.ControllerServiceCapability_RPC_Type) bool {
			return c == csi.ControllerServiceCapability_RPC_EXPAND_VOLUME
		})
		driver.Node = []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	})
	key := d.claim("data", protected)
	d.isBound(key)
	d.request(key, "2Gi")
	d.awaitEvent("VolumeResizeFailed", "EXPAND_VOLUME")
	if n := d.driver.Count("ControllerExpandVolume"); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// A snapshot is created and deleted with the secret that its class names.
func TestSnapshots_areGivenTheirSecrets(t *testing.T) {
	d := newDaemon(t)
	d.isBound(d.claim("data", protected))
	d.secret("secrets", "snap", "hush")
	d.put(func(tx *store.Tx) error {
		return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
			Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			Parameters: map[string]string{"csi.storage.k8s.io/snapshotter-secret-name": "snap", "csi.storage.k8s.io/snapshotter-secret-namespace": "secrets"},
		})
	})
	var seen sync.Map
	d.driver.Before = func(_ context.Context, rpc string, request any) error {
		if asked, ok := request.(interface{ GetSecrets() map[string]string }); ok {
			seen.Store(rpc, asked.GetSecrets()["v"])
		}
		return nil
	}
	d.snapshot("s", "data")
	d.awaitEvent("SnapshotReady", "ns/s")
	d.erase(snapshotResource, "ns/s")
	d.isGone(snapshotResource, "ns/s")
	d.until("the driver has none", func(*store.Tx) bool { return len(d.driver.SnapshotsLeft()) == 0 })
	for _, rpc := range []string{"CreateSnapshot", "DeleteSnapshot"} {
		if value, _ := seen.Load(rpc); value != "hush" {
			t.Errorf("%s got %v", rpc, value)
		}
	}
}
