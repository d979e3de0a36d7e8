package volumes

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// changes are the calls of a driver that change a volume, in order.
func (d *daemon) changes() (calls []string) {
	for _, call := range d.driver.Calls() {
		if call == "ControllerExpandVolume" || call == "ControllerModifyVolume" {
			calls = append(calls, call)
		}
	}
	return calls
}

func (d *daemon) hasClass(key, class string) {
	d.t.Helper()
	d.until("the volume has class "+class, func(tx *store.Tx) bool {
		current := get(d.t, tx.Claims(), key).Status.CurrentVolumeAttributesClassName
		return current != nil && *current == class
	})
}

func growsWithoutNode(driver *csidriver.Driver) { driver.Changes.NoNodeExpansion = true }

// largeOnly is a driver with attributes for volumes of at least 2Gi.
func largeOnly(driver *csidriver.Driver) {
	driver.Before = func(_ context.Context, rpc string, request any) error {
		modify, ok := request.(*csi.ControllerModifyVolumeRequest)
		if ok && driver.Size(modify.GetVolumeId()) < 2<<30 {
			return csidriver.Fail(codes.InvalidArgument, rpc+": the volume is too small")
		}
		return nil
	}
}

// A claim that asks for a size and for attributes at once has its volume expanded
// first: the attributes may require the size.
func TestChanges_expandTheVolumeBeforeTheyModifyIt(t *testing.T) {
	both := []string{"ControllerExpandVolume", "ControllerModifyVolume"}
	ask := func(p *corev1.PersistentVolumeClaim) {
		grow("2Gi")(p)
		attributesNamed("gold")(p)
	}
	t.Run("at once", func(t *testing.T) {
		d := newDaemon(t, modifies, largeOnly)
		key := d.claim("data", protected)
		d.isBound(key)
		d.attributes("gold", "d.example", map[string]string{"iops": "9"})
		d.wants(key, ask)
		d.hasClass(key, "gold")
		if calls := d.changes(); !slices.Equal(calls, both) {
			t.Errorf("calls: %v", calls)
		}
	})
	t.Run("after a start", func(t *testing.T) {
		d := newDaemon(t, modifies, largeOnly)
		key := d.claim("data", protected)
		d.isBound(key)
		d.attributes("gold", "d.example", map[string]string{"iops": "9"})
		d.stop()
		d.wants(key, ask)
		d.start("")
		d.hasClass(key, "gold")
		if calls := d.changes(); !slices.Equal(calls, both) {
			t.Errorf("calls: %v", calls)
		}
	})
}

// An expansion that cannot succeed does not delay a modification, nor the other way
// round.
func TestChanges_doNotDelayEachOther(t *testing.T) {
	d := newDaemon(t, modifies)
	key := d.claim("data", protected)
	d.isBound(key)
	d.put(func(tx *store.Tx) error {
		fixed := class()
		fixed.AllowVolumeExpansion = nil
		return tx.Classes().Put("fast", fixed)
	})
	d.attributes("gold", "d.example", map[string]string{"iops": "9"})
	d.wants(key, func(p *corev1.PersistentVolumeClaim) {
		grow("2Gi")(p)
		attributesNamed("gold")(p)
	})
	d.hasClass(key, "gold")
	d.awaitEvent("VolumeResizeFailed", "does not say allowVolumeExpansion")
	if reason := d.manager.Reason(claimResource, key); reason == "" {
		t.Error("the reason of the claim does not name the expansion")
	}
	d.wants(key, attributesNamed("absent"))
	d.awaitEvent("VolumeModifyFailed", `"absent" does not exist`)
	d.put(func(tx *store.Tx) error { return tx.Classes().Put("fast", class()) })
	d.awaitEvent("FileSystemResizeRequired", "")
	d.until("the claim waits for its class alone", func(*store.Tx) bool {
		return d.manager.Reason(claimResource, key) == `VolumeAttributesClass "absent" does not exist` &&
			d.manager.ClaimFailure(key) == nil
	})
}

// A modification that failed because the volume was too small is repeated after the
// expansion, and not only after the pause of a rejected class.
func TestChanges_anExpansionEndsThePauseOfAModification(t *testing.T) {
	d := newDaemon(t, modifies, largeOnly, func(driver *csidriver.Driver) {
		tooSmall := driver.Before
		driver.Before = func(ctx context.Context, rpc string, request any) error {
			if rpc == "ControllerExpandVolume" && driver.Count("ControllerModifyVolume") == 0 {
				return csidriver.Fail(codes.Internal, "not before the modification")
			}
			return tooSmall(ctx, rpc, request)
		}
	})
	key := d.claim("data", protected)
	d.isBound(key)
	d.attributes("gold", "d.example", map[string]string{"iops": "9"})
	d.wants(key, func(p *corev1.PersistentVolumeClaim) {
		grow("2Gi")(p)
		attributesNamed("gold")(p)
	})
	d.hasClass(key, "gold")
}

// The controllers of a claim see the success of an expansion as a change by another
// writer, which shortens a back-off. They see its failure as a change of their own.
func TestChanges_onlyTheSuccessOfAnExpansionIsNoChangeOfItsOwn(t *testing.T) {
	w := newWorld(t)
	key := w.ensured("data")
	w.request(key, "2Gi")
	writer := &store.Writer{}
	// writers returns the writers of the changes of the claim during an expansion.
	writers := func() (all []*store.Writer) {
		watch := w.store.Watch(w.version())
		_, _ = w.manager.Controllers()[1].Do(store.WithWriter(t.Context(), writer), key)
		changes, err := watch.Poll()
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range changes {
			if change.Kind.Resource == claimResource {
				all = append(all, change.Writer)
			}
		}
		return all
	}
	w.driver.Before = failing("ControllerExpandVolume", codes.Internal, 1)
	if all := writers(); len(all) == 0 || slices.ContainsFunc(all, func(of *store.Writer) bool { return of != writer }) {
		t.Errorf("the writers of a failed expansion are %v", all)
	}
	if all := writers(); len(all) == 0 || all[len(all)-1] == writer {
		t.Errorf("the writers of an expansion are %v", all)
	}
}

// A claim that is deleted while its volume is being expanded or modified keeps the
// volume until the driver has answered.
func TestChanges_endBeforeTheirClaimIsDeleted(t *testing.T) {
	for _, rpc := range []string{"ControllerExpandVolume", "ControllerModifyVolume"} {
		t.Run(rpc, func(t *testing.T) {
			release, called := make(chan struct{}), make(chan struct{})
			var once sync.Once
			d := newDaemon(t, modifies, func(driver *csidriver.Driver) {
				driver.Before = func(_ context.Context, call string, _ any) error {
					if call == rpc {
						once.Do(func() { close(called) })
						<-release
					}
					return nil
				}
			})
			key := d.claim("data", protected)
			d.isBound(key)
			d.attributes("gold", "d.example", map[string]string{"iops": "9"})
			d.wants(key, func(p *corev1.PersistentVolumeClaim) {
				grow("2Gi")(p)
				attributesNamed("gold")(p)
			})
			<-called
			d.erase(claimResource, key)
			d.isBound(d.claim("later")) // so the controllers have the deletion, too
			d.put(func(tx *store.Tx) error {
				if get(t, tx.Claims(), key) == nil || d.driver.Count("DeleteVolume") > 0 {
					t.Errorf("the claim was deleted while %s ran", rpc)
				}
				return nil
			})
			close(release)
			d.isGone(claimResource, key)
			d.hasVolumes(1)
		})
	}
}

// A change that a crash interrupts is completed after the start, together with one
// that was requested meanwhile.
func TestChanges_areCompletedAfterACrashInTheOther(t *testing.T) {
	for point, reason := range map[string]string{
		"host/expand/intent": "VolumeResizeFailed", "host/expand/called": "VolumeResizeFailed",
		"host/modify/intent": "VolumeModifyFailed", "host/modify/called": "VolumeModifyFailed",
	} {
		t.Run(point, func(t *testing.T) {
			d := newDaemon(t, modifies, growsWithoutNode)
			key := d.claim("data", protected)
			d.isBound(key)
			for _, class := range []string{"silver", "gold"} {
				d.attributes(class, "d.example", map[string]string{"class": class})
			}
			d.stop()
			d.start(point + "=error")
			d.wants(key, func(p *corev1.PersistentVolumeClaim) {
				grow("2Gi")(p)
				attributesNamed("silver")(p)
			})
			d.awaitEvent(reason, point)
			d.stop()
			d.wants(key, func(p *corev1.PersistentVolumeClaim) {
				grow("3Gi")(p)
				attributesNamed("gold")(p)
			})
			d.start("")
			d.hasClass(key, "gold")
			d.until("the volume has the size", func(tx *store.Tx) bool {
				size := sizeOf(get(t, tx.Volumes(), "pvc-uid-data"))
				return size.String() == "3Gi"
			})
			const id = "id-pvc-uid-data"
			if size, class := d.driver.Size(id), d.driver.Modified(id)["class"]; size != 3<<30 || class != "gold" {
				t.Errorf("the driver's volume has %d bytes and class %q", size, class)
			}
		})
	}
}
