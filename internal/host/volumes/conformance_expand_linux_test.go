package volumes

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// grown writes into a claim that the controller has grown its volume.
func (w *world) grown(key, size string) {
	w.t.Helper()
	w.put(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
		return tx.Claims().Put(key, pvc)
	})
}

func (w *world) resize(key string) (state corev1.ClaimResourceStatus, capacity string) {
	w.t.Helper()
	pvc := w.bound(key).claim
	size := pvc.Status.Capacity[corev1.ResourceStorage]
	return pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage], size.String()
}

// online does what the controller of growing filesystems does.
func (w *world) online(key string) error {
	_, err := w.manager.growthController().Do(w.t.Context(), key)
	return err
}

// The filesystem of a volume that grew while no pod used it
// grows when a pod mounts it, with its staging path, attached or not.
func TestGrow_whenAPodMountsTheVolume(t *testing.T) {
	for _, attached := range []bool{true, false} {
		w, a := newServing(t, func(d *csidriver.Driver) {
			if attached {
				attaching(d)
			}
		})
		key := w.ensured("a")
		w.grown(key, "2Gi")
		p := w.create(pod("web", "a"))
		target := w.mount(p)["data"].Path
		request := one[*csi.NodeExpandVolumeRequest](t, a)
		if request.GetStagingTargetPath() == "" || request.GetVolumePath() != target || request.GetCapacityRange().GetRequiredBytes() != 2<<30 {
			t.Errorf("expanded with %v", request)
		}
		if state, capacity := w.resize(key); state != "" || capacity != "2Gi" {
			t.Errorf("%s, %s", state, capacity)
		}
		w.mount(p)
		one[*csi.NodeExpandVolumeRequest](t, a) // not again
	}
}

// A driver without EXPAND_VOLUME on the node is not called.
func TestGrow_notForADriverWithoutNodeExpansion(t *testing.T) {
	w, a := newServing(t, func(d *csidriver.Driver) {
		d.Node = []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	})
	key := w.ensured("a")
	w.mount(w.create(pod("web", "a")))
	w.grown(key, "2Gi")
	if err := w.online(key); err != nil {
		t.Fatal(err)
	}
	if state, capacity := w.resize(key); state != "" || capacity != "2Gi" || len(requests[*csi.NodeExpandVolumeRequest](a)) != 0 {
		t.Errorf("%s, %s", state, capacity)
	}
}

// The filesystem of a mounted volume grows under its pod,
// with the secret of the volume, attached or not.
func TestGrow_whileTheVolumeIsMounted(t *testing.T) {
	for _, attached := range []bool{true, false} {
		w, a := newServing(t, func(d *csidriver.Driver) {
			if attached {
				attaching(d)
			}
		})
		key := w.ensured("a")
		w.volume(key, func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.NodeExpandSecretRef = &corev1.SecretReference{Namespace: "secrets", Name: "grow"}
		})
		w.mount(w.create(pod("web", "a")))
		w.grown(key, "2Gi")
		if err := w.online(key); err != nil || len(requests[*csi.NodeExpandVolumeRequest](a)) != 0 {
			t.Fatalf("without its secret: %v", err)
		}
		w.secret("secrets", "grow", "x")
		if err := w.online(key); err != nil {
			t.Fatal(err)
		}
		if got := one[*csi.NodeExpandVolumeRequest](t, a).GetSecrets()["v"]; got != "x" {
			t.Errorf("the secret is %q", got)
		}
		if state, capacity := w.resize(key); state != "" || capacity != "2Gi" {
			t.Errorf("%s, %s", state, capacity)
		}
	}
}

// The claim's status tells a final failure, a temporary one, and a refusal because the
// volume is in use.
func TestGrow_recordsTheDriversAnswerInTheClaim(t *testing.T) {
	for _, test := range []struct {
		code  codes.Code
		state corev1.ClaimResourceStatus
		again bool // it is an error, so that it is tried again
		calls int  // after three attempts
		noted bool
	}{
		{codes.InvalidArgument, corev1.PersistentVolumeClaimNodeResizeInfeasible, false, 1, true},
		{codes.OutOfRange, corev1.PersistentVolumeClaimNodeResizeInfeasible, false, 1, true},
		{codes.FailedPrecondition, corev1.PersistentVolumeClaimNodeResizePending, false, 1, true},
		{codes.Internal, corev1.PersistentVolumeClaimNodeResizePending, true, 3, true},
		{codes.Unavailable, corev1.PersistentVolumeClaimNodeResizeInProgress, true, 3, false},
	} {
		t.Run(test.code.String(), func(t *testing.T) {
			w, a := newServing(t)
			a.fail = failures("NodeExpandVolume", test.code, 100)
			key := w.ensured("a")
			p := w.create(pod("web", "a"))
			w.mount(p)
			w.grown(key, "2Gi")
			for range 3 {
				if err := w.online(key); (err == nil) == test.again {
					t.Errorf("got %v", err)
					break
				}
				if !test.again {
					continue
				}
			}
			pvc := w.bound(key).claim
			if state, _ := w.resize(key); state != test.state || len(requests[*csi.NodeExpandVolumeRequest](a)) != test.calls {
				t.Errorf("state %s after %d calls", state, len(requests[*csi.NodeExpandVolumeRequest](a)))
			}
			if condition := claim.Condition(pvc, corev1.PersistentVolumeClaimNodeResizeError); (condition != nil) != test.noted {
				t.Errorf("condition %+v", condition)
			}
			if !test.again {
				w.mount(p) // it keeps no pod from the volume
			}
		})
	}
}

// A driver that refused because the volume was in use is asked again when it is
// staged again, also if the pod is the same (kubelet-and-csi: "not retried on this
// node while in use").
func TestGrow_isRetriedWhenTheVolumeIsStagedAgain(t *testing.T) {
	w, a := newServing(t)
	a.fail = failures("NodeExpandVolume", codes.FailedPrecondition, 1)
	key := w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.grown(key, "2Gi")
	if err := w.online(key); err != nil {
		t.Fatal(err)
	}
	w.unmountAll()
	w.serving("boot-2", "") // nothing is mounted any more, and the pod still there
	w.mount(p)
	if state, capacity := w.resize(key); state != "" || capacity != "2Gi" {
		t.Errorf("%q, %s", state, capacity)
	}
}

func TestGrow_prefersAWritableMount(t *testing.T) {
	w, a := newServing(t)
	key := w.ensured("a")
	reader := pod("a-reader", "a")
	reader.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.mount(w.create(reader))
	target := w.mount(w.create(pod("writer", "a")))["data"].Path
	w.grown(key, "2Gi")
	if err := w.online(key); err != nil {
		t.Fatal(err)
	}
	if got := one[*csi.NodeExpandVolumeRequest](t, a).GetVolumePath(); got != target {
		t.Errorf("grown at %s, not at %s", got, target)
	}
}

func TestGrow_skipsAReadOnlyUse(t *testing.T) {
	w, a := newServing(t)
	key := w.ensured("a")
	p := pod("web", "a")
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.mount(w.create(p))
	w.grown(key, "2Gi")
	if err := w.online(key); err != nil || len(requests[*csi.NodeExpandVolumeRequest](a)) != 0 {
		t.Errorf("%v, %d calls", err, len(requests[*csi.NodeExpandVolumeRequest](a)))
	}
}

func withStats(d *csidriver.Driver) {
	d.Node = append(d.Node, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
}

// A driver's usage is returned; a driver without it gets an error that says so.
func TestStats(t *testing.T) {
	w, _ := newServing(t, withStats)
	key := w.ensured("a")
	if _, err := w.manager.Stats(t.Context(), key); err == nil || !strings.Contains(err.Error(), "not mounted") {
		t.Errorf("before the mount: %v", err)
	}
	w.mount(w.create(pod("web", "a")))
	stats, err := w.manager.Stats(t.Context(), key)
	if err != nil || stats.Bytes.Total != 64<<10 || len(stats.Pods) != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	without, _ := newServing(t)
	key = without.ensured("a")
	without.mount(without.create(pod("web", "a")))
	if _, err := without.manager.Stats(t.Context(), key); err == nil || !strings.Contains(err.Error(), "GET_VOLUME_STATS") {
		t.Errorf("without the capability: %v", err)
	}
}

// The growth of a filesystem concerns the claim: that its PersistentVolume is deleted
// by force meanwhile keeps no pod from the volume.
func TestGrow_withoutThePersistentVolume(t *testing.T) {
	for _, test := range []struct {
		name     string
		fail     codes.Code
		before   bool // the PersistentVolume is deleted before the call
		state    corev1.ClaimResourceStatus
		capacity string
	}{
		{"it is deleted before the call", codes.OK, true, "", "2Gi"},
		{"it is deleted during the call", codes.OK, false, "", "2Gi"},
		{"it is deleted during the call, which fails", codes.InvalidArgument, false,
			corev1.PersistentVolumeClaimNodeResizeInfeasible, "1Gi"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, a := newServing(t)
			key := w.ensured("a")
			p := w.create(pod("web", "a"))
			path := w.mount(p)["data"].Path
			w.grown(key, "2Gi")
			found := w.bound(key)
			erase := func() {
				w.put(func(tx *store.Tx) error { return tx.Volumes().Delete(found.volume.Name) })
			}
			a.fail = func(rpc string, _ int) error {
				if rpc != "NodeExpandVolume" {
					return nil
				}
				if !test.before {
					erase()
				}
				if test.fail != codes.OK {
					return csidriver.Fail(test.fail, "as asked")
				}
				return nil
			}
			var err error
			if test.before {
				erase()
				err = w.manager.expandNode(t.Context(), growth{
					key: key, found: found, use: w.uses()[0], path: path,
					size: found.claim.Status.AllocatedResources[corev1.ResourceStorage], about: claimAbout(found.claim),
				})
			} else {
				_, err = w.tryMount(p)
			}
			if err != nil {
				t.Error(err)
			}
			one[*csi.NodeExpandVolumeRequest](t, a)
			if state, capacity := w.resize(key); state != test.state || capacity != test.capacity {
				t.Errorf("%q, %s", state, capacity)
			}
		})
	}
}

// A desired size that was lowered when the volume had grown already does not
// shrink anything: the filesystem follows the volume.
func TestGrow_aRequestLoweredTooLateIsNotFollowed(t *testing.T) {
	w, a := newServing(t)
	key := w.ensured("a")
	w.mount(w.create(pod("web", "a")))
	w.request(key, "3Gi")
	w.grown(key, "3Gi")
	w.request(key, "2Gi")
	if err := w.online(key); err != nil {
		t.Fatal(err)
	}
	if got := one[*csi.NodeExpandVolumeRequest](t, a).GetCapacityRange().GetRequiredBytes(); got != 3<<30 {
		t.Errorf("grew to %d", got)
	}
	if state, capacity := w.resize(key); state != "" || capacity != "3Gi" {
		t.Errorf("%s, %s", state, capacity)
	}
}
