package volumes

import (
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func (d *daemon) attributes(name, driver string, parameters map[string]string) {
	d.t.Helper()
	d.put(func(tx *store.Tx) error {
		return tx.AttributesClasses().Put(name, &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: parameters,
		})
	})
}

// wants changes the requests of a claim.
func (d *daemon) wants(key string, change func(*corev1.PersistentVolumeClaim)) {
	d.t.Helper()
	d.put(func(tx *store.Tx) error {
		pvc := get(d.t, tx.Claims(), key)
		change(pvc)
		return tx.Claims().Put(key, pvc)
	})
}

func attributesNamed(name string) func(*corev1.PersistentVolumeClaim) {
	return func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeAttributesClassName = &name }
}

func TestModify_atCreationAndLater(t *testing.T) {
	d := newDaemon(t, modifies)
	key := d.claim("data", protected, attributesNamed("silver"))
	d.awaitEvent("ProvisioningFailed", `VolumeAttributesClass "silver" does not exist`)
	d.attributes("silver", "d.example", map[string]string{"iops": "1"})
	d.isBound(key)
	if made := d.driver.Request("pvc-uid-data").GetMutableParameters(); made["iops"] != "1" {
		t.Errorf("it was made with %v", made)
	}
	d.wants(key, attributesNamed("gold"))
	d.awaitEvent("VolumeModifyFailed", `"gold" does not exist`)
	d.attributes("gold", "d.example", map[string]string{"iops": "9"})
	d.awaitEvent("VolumeModifySuccessful", "gold")
	if now := d.driver.Modified("id-pvc-uid-data"); now["iops"] != "9" {
		t.Errorf("it has %v", now)
	}
	d.attributes("foreign", "other.example", map[string]string{"a": "b"})
	d.wants(key, attributesNamed("foreign"))
	d.awaitEvent("VolumeModifyFailed", "is for driver other.example")
	d.until("it is infeasible", func(tx *store.Tx) bool {
		status := get(t, tx.Claims(), key).Status
		return status.ModifyVolumeStatus.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible && *status.CurrentVolumeAttributesClassName == "gold"
	})
	if d.driver.Count("ControllerModifyVolume") != 1 {
		t.Errorf("calls: %v", d.driver.Calls())
	}
}

func TestModify_completesAnUncertainCallBeforeAnotherClass(t *testing.T) {
	d := newDaemon(t, modifies)
	key := d.claim("data", protected)
	d.isBound(key)
	d.attributes("gold", "d.example", map[string]string{"iops": "9"})
	d.attributes("silver", "d.example", map[string]string{"iops": "1"})
	d.driver.After = failing("ControllerModifyVolume", codes.Unavailable, 1)
	d.wants(key, attributesNamed("gold"))
	d.awaitEvent("VolumeModifyFailed", "Unavailable")
	d.wants(key, attributesNamed("silver"))
	d.until("silver is current", func(tx *store.Tx) bool {
		current := get(t, tx.Claims(), key).Status.CurrentVolumeAttributesClassName
		return current != nil && *current == "silver"
	})
	if calls := d.driver.Count("ControllerModifyVolume"); calls != 3 { // gold, gold, silver
		t.Errorf("%d calls", calls)
	}
}

func TestExpand_anInfeasibleSizeCanBeLowered(t *testing.T) {
	d := newDaemon(t, func(driver *csidriver.Driver) { driver.Changes.NoNodeExpansion = true })
	key := d.claim("data", protected)
	d.isBound(key)
	d.driver.Before = failing("ControllerExpandVolume", codes.OutOfRange, 1)
	d.wants(key, grow("8Gi"))
	d.awaitEvent("VolumeResizeFailed", "OutOfRange")
	d.until("it is infeasible", func(tx *store.Tx) bool {
		status := get(t, tx.Claims(), key).Status
		return status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimControllerResizeInfeasible
	})
	d.wants(key, grow("2Gi"))
	d.awaitEvent("VolumeResizeSuccessful", "2Gi")
	d.until("the failure is removed from the status", func(tx *store.Tx) bool {
		pvc := get(t, tx.Claims(), key)
		size := pvc.Status.Capacity[corev1.ResourceStorage]
		return size.String() == "2Gi" && len(pvc.Status.Conditions) == 0 && len(pvc.Status.AllocatedResourceStatuses) == 0
	})
}

// A driver that refuses to expand a volume in use is asked again when the volume
// is idle, as on a cluster.
func TestExpand_aDriverThatRefusesInUseIsAskedWhenTheVolumeIsIdle(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	name := newUse(d.bound(key).volume).Name
	used := &store.VolumeUse{Name: name, Targets: map[string]store.Target{"/here": {Pod: "default/web", Phase: store.PhaseDone}}}
	d.put(func(tx *store.Tx) error { return tx.Uses().Put(name, used) })
	d.driver.Before = failing("ControllerExpandVolume", codes.FailedPrecondition, 1)
	d.wants(key, grow("2Gi"))
	d.awaitEvent("VolumeResizeFailed", "FailedPrecondition")
	d.awaitEvent("VolumeResizeFailed", "it is used by pod default/web")
	if calls := d.driver.Count("ControllerExpandVolume"); calls != 1 {
		t.Errorf("%d calls", calls)
	}
	d.put(func(tx *store.Tx) error { return tx.Uses().Delete(name) })
	d.awaitEvent("FileSystemResizeRequired", "")
}

func TestExpand_theNodeFollowsTheController(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	d.wants(key, grow("2Gi"))
	d.awaitEvent("FileSystemResizeRequired", "on the node")
	d.until("the node's expansion is pending", func(tx *store.Tx) bool {
		pvc := get(t, tx.Claims(), key)
		return claim.Condition(pvc, corev1.PersistentVolumeClaimFileSystemResizePending) != nil &&
			pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending
	})
	if calls := d.driver.Count("ControllerExpandVolume"); calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestExpand_rejectsAnAnswerWithASmallerSize(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	d.driver.Changes.Answer = func(int64) int64 { return 1 }
	d.wants(key, grow("2Gi"))
	d.awaitEvent("VolumeResizeFailed", "less than the 2147483648 asked for")
	if pv := d.bound(key).volume; pv.Spec.Capacity.Storage().String() != "1Gi" {
		t.Errorf("the volume is said to have %v", pv.Spec.Capacity)
	}
}
