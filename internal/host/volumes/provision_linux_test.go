package volumes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// failing answers the first calls of an RPC with an error, before or after the
// effect.
func failing(rpc string, code codes.Code, times int) func(context.Context, string, any) error {
	return func(_ context.Context, name string, _ any) error {
		if name != rpc || times == 0 {
			return nil
		}
		times--
		return csidriver.Fail(code, "asked to fail")
	}
}

func TestClaim_makesOneVolumeAndBindsIt(t *testing.T) {
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Plugin = append(d.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
		d.Topology = map[string]string{"zone": "a"}
	})
	key := w.ensured("data")
	found := w.bound(key)
	switch {
	case found.volume == nil || found.volume.Name != "pvc-uid-data" || found.claim.Spec.VolumeName != "pvc-uid-data":
		t.Errorf("the claim has %v", found.volume)
	case found.claim.Status.Phase != corev1.ClaimBound:
		t.Errorf("the claim is %s", found.claim.Status.Phase)
	case found.volume.Spec.CSI.VolumeHandle != "id-pvc-uid-data" || found.volume.Spec.CSI.FSType != "":
		t.Errorf("the volume is %+v", found.volume.Spec.CSI)
	}
	if err := w.ensure(key); err != nil {
		t.Error(err)
	}
	w.calls("CreateVolume")
	if _, _, provisionings, _, _ := w.records(); provisionings != 0 {
		t.Error("the intent is still recorded")
	}
}

func TestClaim_repeatsTheSameRequestWhileTheOutcomeIsUncertain(t *testing.T) {
	for _, code := range []codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded} {
		t.Run(code.String(), func(t *testing.T) {
			w := newWorld(t)
			var requests []*csi.CreateVolumeRequest
			w.driver.Before = func(_ context.Context, _ string, request any) error {
				if create, ok := request.(*csi.CreateVolumeRequest); ok {
					requests = append(requests, create)
					// The class changes while the outcome is unknown.
					changed := class()
					changed.Parameters = map[string]string{"other": "value"}
					w.put(func(tx *store.Tx) error { return tx.Classes().Put("fast", changed) })
				}
				return nil
			}
			w.driver.After = failing("CreateVolume", code, 1) // made, but not reported
			w.ensured("data")
			if len(requests) != 2 || !proto.Equal(requests[0], requests[1]) {
				t.Errorf("the requests were %v", requests)
			}
			if volumes, _ := w.driver.Left(); volumes != 1 {
				t.Errorf("there are %d volumes", volumes)
			}
		})
	}
}

func TestClaim_aFinalErrorRemovesTheIntent(t *testing.T) {
	w := newWorld(t)
	key := w.claim("data")
	w.driver.Before = failing("CreateVolume", codes.InvalidArgument, 1)
	if err := w.ensure(key); !errors.Is(err, backend.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	w.calls("CreateVolume")
	if _, _, provisionings, _, _ := w.records(); provisionings != 0 {
		t.Error("the intent is still recorded")
	}
	if err := w.ensure(key); err != nil {
		t.Errorf("the next try: %v", err)
	}
}

func TestClaim_crashAtEachStepMakesNoSecondVolume(t *testing.T) {
	for _, point := range []string{"host/provision/intent", "host/provision/called", "host/provision/recorded"} {
		t.Run(strings.ReplaceAll(point, "/", "_"), func(t *testing.T) {
			w := newWorld(t)
			key := w.claim("data")
			w.restart("boot-1", point+"=error")
			if _, err := w.manager.syncClaim(t.Context(), key); err == nil {
				t.Fatal("the point was not passed")
			}
			w.restart("boot-1", "")
			if err := w.ensure(key); err != nil {
				t.Fatal(err)
			}
			if volumes, _ := w.driver.Left(); volumes != 1 || w.bound(key).volume == nil {
				t.Errorf("there are %d volumes", volumes)
			}
		})
	}
}

func TestClaimDeletion_findsAVolumeThatWasNotRecorded(t *testing.T) {
	for _, point := range []string{"host/provision/called", "host/delete/intent", "host/delete/called"} {
		t.Run(strings.ReplaceAll(point, "/", "_"), func(t *testing.T) {
			w := newWorld(t)
			key := w.claim("data")
			w.restart("boot-1", point+"=error")
			_ = w.ensure(key)
			_ = w.deleteClaim(key)
			// The next process continues by itself if the deletion was begun.
			w.restart("boot-1", "")
			w.recoverAll()
			if err := w.deleteClaim(key); err != nil {
				t.Fatal(err)
			}
			volumes, _ := w.driver.Left()
			if _, _, provisionings, claims, recorded := w.records(); volumes+provisionings+claims+recorded != 0 {
				t.Errorf("left: %d volumes, %d intents, %d claims, %d objects", volumes, provisionings, claims, recorded)
			}
		})
	}
}

func TestClaimDeletion_retainKeepsTheVolume(t *testing.T) {
	w := newWorld(t)
	retain := corev1.PersistentVolumeReclaimRetain
	kept := class()
	kept.ReclaimPolicy = &retain
	w.put(func(tx *store.Tx) error { return tx.Classes().Put("fast", kept) })
	key := w.ensured("data")
	if err := w.deleteClaim(key); err != nil {
		t.Fatal(err)
	}
	w.calls("CreateVolume")
	if _, _, _, claims, volumes := w.records(); claims != 0 || volumes != 1 {
		t.Errorf("%d claims, %d volumes", claims, volumes)
	}
}

func TestClaimDeletion_refusesAClaimInUse(t *testing.T) {
	w := newWorld(t)
	key := w.ensured("data")
	p := pod("a", "data")
	w.mount(p)
	if err := w.deleteClaim(key); err == nil || !strings.Contains(err.Error(), "in use by pod ns/a") {
		t.Errorf("got %v", err)
	}
	w.unmount(p)
	if err := w.deleteClaim(key); err != nil {
		t.Error(err)
	}
}

func TestClaim_deletesATooSmallVolume(t *testing.T) {
	w := newWorld(t)
	key := w.claim("data", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	})
	w.driver.Before = func(_ context.Context, _ string, request any) error {
		if create, ok := request.(*csi.CreateVolumeRequest); ok {
			create.CapacityRange.RequiredBytes = 1 // the driver misreads the size
		}
		return nil
	}
	if err := w.ensure(key); err == nil || !strings.Contains(err.Error(), "less than the 1073741824 asked for") {
		t.Fatalf("got %v", err)
	}
	w.calls("CreateVolume", "DeleteVolume")
	if volumes, _ := w.driver.Left(); volumes != 0 {
		t.Errorf("%d volumes are left", volumes)
	}
}

func TestClaim_aCopyWaitsForItsSource(t *testing.T) {
	w := newWorld(t)
	source := w.claim("source")
	key := w.claim("copy", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
	})
	if err := w.ensure(key); !errors.Is(err, ErrWaiting) {
		t.Errorf("before the source has a volume: %v", err)
	}
	for _, key := range []string{source, key} {
		if err := w.ensure(key); err != nil {
			t.Fatal(err)
		}
	}
	w.calls("CreateVolume", "CreateVolume")
	if w.bound("ns/source").volume == nil {
		t.Error("the source has no volume")
	}
}

func TestClaim_namesTheMissingCapability(t *testing.T) {
	cases := []struct {
		name   string
		change func(*csidriver.Driver)
		want   string
	}{
		{"no creation", func(d *csidriver.Driver) { d.Controller = nil }, "does not make volumes"},
		{"no copies", func(d *csidriver.Driver) {
			d.Controller = []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
		}, "does not clone volumes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.change)
			w.claim("source")
			key := w.claim("copy", func(p *corev1.PersistentVolumeClaim) {
				p.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
			})
			if err := w.ensure(key); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func grow(size string) func(*corev1.PersistentVolumeClaim) {
	return func(p *corev1.PersistentVolumeClaim) {
		p.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	}
}

// request changes the size that a claim that exists asks for.
func (w *world) request(key, size string) {
	w.t.Helper()
	pvc := w.bound(key).claim
	grow(size)(pvc)
	w.put(func(tx *store.Tx) error { return tx.Claims().Put(key, pvc) })
}

func TestExpand_controllerThenNode(t *testing.T) {
	w := newWorld(t)
	key := w.ensured("data")
	w.request(key, "2Gi")
	if err := w.ensure(key); err != nil {
		t.Fatal(err)
	}
	if status := w.bound(key).claim.Status; status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizePending {
		t.Errorf("between the two: %+v", status)
	}
	p := pod("a", "data")
	w.mount(p)
	w.unmount(p)
	w.calls("CreateVolume", "ControllerExpandVolume", "NodeStageVolume", "NodePublishVolume", "NodeExpandVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
	status := w.bound(key).claim.Status
	if size := status.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" || len(status.AllocatedResourceStatuses) != 0 {
		t.Errorf("in the end: %+v", status)
	}
}

func TestExpand_isCompletedAfterACrash(t *testing.T) {
	for _, point := range []string{"host/expand/intent", "host/expand/called"} {
		t.Run(strings.ReplaceAll(point, "/", "_"), func(t *testing.T) {
			w := newWorld(t)
			key := w.ensured("data")
			w.request(key, "2Gi")
			w.restart("boot-1", point+"=error")
			if _, err := w.manager.syncExpansion(t.Context(), key); err == nil {
				t.Fatal("the point was not passed")
			}
			w.restart("boot-1", "")
			if err := w.ensure(key); err != nil {
				t.Fatal(err)
			}
			if size := w.bound(key).volume.Spec.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" {
				t.Errorf("the volume has %s", size.String())
			}
		})
	}
}

func TestExpand_needsTheClassesPermission(t *testing.T) {
	w := newWorld(t)
	key := w.ensured("data")
	fixed := class()
	fixed.AllowVolumeExpansion = nil
	w.put(func(tx *store.Tx) error { return tx.Classes().Put("fast", fixed) })
	w.request(key, "2Gi")
	if err := w.ensure(key); err == nil || !strings.Contains(err.Error(), "allowVolumeExpansion: true") {
		t.Errorf("got %v", err)
	}
	if slices.Contains(w.driver.Calls(), "ControllerExpandVolume") {
		t.Error("the driver was asked")
	}
}
