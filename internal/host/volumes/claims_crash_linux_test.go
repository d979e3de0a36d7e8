package volumes

import (
	"context"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// life takes a claim, a copy of it and a snapshot through everything that
// happens to them.
func (d *daemon) life() {
	d.t.Helper()
	d.put(func(tx *store.Tx) error {
		return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
			Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	})
	d.put(func(tx *store.Tx) error {
		return tx.AttributesClasses().Put("gold", &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "d.example", Parameters: map[string]string{"iops": "9"},
		})
	})
	d.volume(volumeOf("brought", "1Gi", ""))
	empty, gold := "", "gold"
	bound := d.claim("bound", protected, func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = &empty })
	key := d.claim("data", protected)
	d.isBound(bound)
	d.isBound(key)
	d.put(func(tx *store.Tx) error {
		pvc := get(d.t, tx.Claims(), key)
		grow("2Gi")(pvc)
		pvc.Spec.VolumeAttributesClassName = &gold
		return tx.Claims().Put(key, pvc)
	})
	d.until("it has grown and changed", func(tx *store.Tx) bool {
		pv, pvc := get(d.t, tx.Volumes(), "pvc-uid-data"), get(d.t, tx.Claims(), key)
		size := sizeOf(pv)
		return size.String() == "2Gi" && volumeAttributesClass(pv) == "gold" && pvc.Status.ModifyVolumeStatus == nil
	})
	d.snapshot("s", "data")
	d.until("the snapshot is ready", func(tx *store.Tx) bool { return isReady(get(d.t, tx.Snapshots(), "ns/s")) })
	d.erase(snapshotResource, "ns/s")
	d.erase(claimResource, key)
	d.erase(claimResource, bound)
	for _, gone := range []string{key, bound} {
		d.isGone(claimResource, gone)
	}
	d.isGone(snapshotResource, "ns/s")
	d.isGone(contentResource, "snapcontent-uid-s")
	d.isGone(volumeResource, "pvc-uid-data")
	d.hasVolumes(0)
	if left := d.driver.SnapshotsLeft(); len(left) != 0 {
		d.t.Errorf("left: %v", left)
	}
	if d.driver.Count("DeleteSnapshot") == 0 {
		d.t.Error("the snapshot was not deleted")
	}
}

func modifies(driver *csidriver.Driver) {
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
}

func TestControllers_continueAfterACrashAtEachPoint(t *testing.T) {
	for _, point := range points() {
		t.Run(strings.ReplaceAll(point, "/", "_"), func(t *testing.T) {
			t.Parallel() // what fails waits for half a second
			d := newDaemon(t, modifies)
			d.stop()
			d.start(point + "=error")
			d.life()
			if d.manager.options.Failpoints.Hit(point) != nil { // it fails the first time only
				t.Error("the point was not passed")
			}
		})
	}
}

func TestControllers_deleteTheVolumeOfACallWithoutAnAnswer(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Aborted, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			d := newDaemon(t)
			d.driver.After = failing("CreateVolume", code, 1)
			d.claim("data", protected)
			d.awaitEvent("ProvisioningFailed", code.String())
			d.erase(claimResource, "ns/data")
			d.isGone(claimResource, "ns/data")
			d.hasVolumes(0)
			d.isGone(volumeResource, "pvc-uid-data")
			d.calls("CreateVolume", "CreateVolume", "DeleteVolume")
		})
	}
}

func TestControllers_completeACreationWhoseClaimWasReplaced(t *testing.T) {
	d := newDaemon(t)
	d.driver.After = failing("CreateVolume", codes.Unavailable, 1)
	d.claim("data")
	d.awaitEvent("ProvisioningFailed", "Unavailable")
	d.put(func(tx *store.Tx) error { return tx.Claims().Delete("ns/data") })
	d.hasVolumes(0)
	d.until("the record is gone", func(tx *store.Tx) bool { return get(t, tx.Provisionings(), "uid-data") == nil })
}

func TestControllers_keepTheIntentOfAnUnknownVolume(t *testing.T) {
	d := newDaemon(t)
	calls := 0
	d.driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc != "CreateVolume" {
			return nil
		}
		if calls++; calls == 1 {
			return csidriver.Fail(codes.Unavailable, "gone")
		}
		return csidriver.Fail(codes.AlreadyExists, "whose is that?")
	}
	d.claim("data", protected)
	d.awaitEvent("ProvisioningFailed", "the driver does not say")
	d.put(func(tx *store.Tx) error {
		if get(t, tx.Provisionings(), "uid-data") == nil {
			t.Error("the record is gone, and with it the way to find the volume")
		}
		return nil
	})
	d.erase(claimResource, "ns/data")
	d.wants("ns/data", func(p *corev1.PersistentVolumeClaim) { p.Annotations = map[string]string{AbandonAnnotation: "true"} })
	d.isGone(claimResource, "ns/data")
}

// After a CreateSnapshot that may have succeeded, INTERNAL does not show its outcome. If
// the mark were removed, deleting the snapshot would leak the driver's.
func TestControllers_keepTheMarkOfAnUnknownSnapshot(t *testing.T) {
	d := newDaemon(t)
	d.isBound(d.claim("data", protected))
	calls := 0
	d.driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc != "CreateSnapshot" {
			return nil
		}
		switch calls++; calls {
		case 1:
			return csidriver.Fail(codes.Unavailable, "gone")
		case 2:
			return csidriver.Fail(codes.Internal, "broken")
		}
		return nil
	}
	d.put(func(tx *store.Tx) error {
		return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
			Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	})
	d.snapshot("s", "data")
	d.until("the driver was asked twice", func(*store.Tx) bool { return d.driver.Count("CreateSnapshot") >= 2 })
	d.erase(snapshotResource, "ns/s")
	d.isGone(snapshotResource, "ns/s")
	d.isGone(contentResource, "snapcontent-uid-s")
	if left := d.driver.SnapshotsLeft(); len(left) != 0 {
		t.Errorf("the driver keeps %v without a record", left)
	}
}

func TestControllers_deleteAVolumeThatDoesNotFit(t *testing.T) {
	cases := []struct {
		name string
		lie  func(*csi.CreateVolumeRequest, *csi.Volume)
		want string
	}{
		{"too small", func(_ *csi.CreateVolumeRequest, v *csi.Volume) { v.CapacityBytes = 1 }, "less than the 1073741824 asked for"},
		{"elsewhere", func(_ *csi.CreateVolumeRequest, v *csi.Volume) {
			v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"zone": "b"}}}
		}, "none of the topologies asked for"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDaemon(t, func(driver *csidriver.Driver) {
				driver.Plugin = append(driver.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
				driver.Topology = map[string]string{"zone": "a"}
				driver.Creation.Answer = c.lie
			})
			d.claim("data", protected)
			d.awaitEvent("ProvisioningFailed", c.want)
			d.hasVolumes(0)
		})
	}
}

func TestControllers_repeatTheCallAfterAnAnswerWithoutAnID(t *testing.T) {
	d := newDaemon(t, func(driver *csidriver.Driver) {
		driver.Creation.Answer = func(_ *csi.CreateVolumeRequest, v *csi.Volume) { v.VolumeId = "" }
	})
	d.claim("data", protected)
	d.awaitEvent("ProvisioningFailed", "without a volume_id")
	if d.driver.Count("DeleteVolume") != 0 {
		t.Error("something was deleted")
	}
}

func TestControllers_aDriverThatHangsDelaysNoOther(t *testing.T) {
	d := newDaemon(t)
	release := make(chan struct{})
	defer close(release)
	d.driver.Before = func(ctx context.Context, rpc string, request any) error {
		if create, ok := request.(*csi.CreateVolumeRequest); ok && strings.HasPrefix(create.GetName(), "pvc-uid-h") {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		_ = rpc
		return nil
	}
	d.put(func(tx *store.Tx) error {
		slow := class()
		slow.Name = "slow"
		return tx.Classes().Put("slow", slow)
	})
	for i := range 40 { // more than a partition has room for
		d.claim("h"+string(rune('a'+i%26))+string(rune('a'+i/26)), func(p *corev1.PersistentVolumeClaim) { name := "slow"; p.Spec.StorageClassName = &name })
	}
	d.isBound(d.claim("data"))
}

func TestControllers_reclaimWaitsForSnapshotsThatDepend(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	d.driver.Before = failing("DeleteVolume", codes.FailedPrecondition, 2)
	d.erase(claimResource, key)
	d.awaitEvent("VolumeFailedDelete", "FailedPrecondition")
	d.hasVolumes(0)
	d.isGone(volumeResource, "pvc-uid-data")
}
