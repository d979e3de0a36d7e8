package provision

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/topology"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// places is a Topology that gives one place, or an error.
type places struct {
	segments map[string]string
	err      error
}

func (p places) Requirement(*corev1.PersistentVolumeClaim, *storagev1.StorageClass, string) (*csi.TopologyRequirement, error) {
	if p.err != nil || p.segments == nil {
		return nil, p.err
	}
	here := []*csi.Topology{{Segments: p.segments}}
	return &csi.TopologyRequirement{Requisite: here, Preferred: here}, nil
}

func (w *world) withTopology() {
	w.Driver.Plugin = append(w.Driver.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
}

func in(key, value string) []*csi.Topology {
	return []*csi.Topology{{Segments: map[string]string{key: value}}}
}

func TestAnswer_nonsenseIsTakenBack(t *testing.T) {
	cases := []struct {
		name   string
		wrong  func(*csi.CreateVolumeRequest, *csi.Volume)
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		{"too small", func(_ *csi.CreateVolumeRequest, v *csi.Volume) { v.CapacityBytes = 5 }, nil, "with 5 bytes, less than the 1073741824 asked for"},
		{"empty instead of a copy", func(_ *csi.CreateVolumeRequest, v *csi.Volume) { v.ContentSource = nil }, cloneOf("src"), "not from the source asked for"},
		{"in the wrong place", func(_ *csi.CreateVolumeRequest, v *csi.Volume) { v.AccessibleTopology = in("zone", "b") }, nil, "in {zone=b}, which is none of the topologies asked for, {zone=a}"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, append(bound("src"), newClass())...)
			w.withTopology()
			w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
			var lie atomic.Bool
			lie.Store(true)
			w.Driver.Creation.Answer = func(request *csi.CreateVolumeRequest, volume *csi.Volume) {
				if lie.Load() {
					c.wrong(request, volume)
				}
			}
			w.Driver.Before = func(ctx context.Context, rpc string, request any) error {
				if rpc == "DeleteVolume" {
					lie.Store(false) // the next one is right
				}
				return w.before(ctx, rpc, request)
			}
			w.run(func(_ *cluster.Env, o *Options) { o.Topology = places{segments: map[string]string{"zone": "a"}} })
			change := c.change
			if change == nil {
				change = func(*corev1.PersistentVolumeClaim) {}
			}
			w.Add(newClaim("a", change))
			w.event("Warning ProvisioningFailed ns/a", c.want)
			w.complete(2)
			if w.Driver.Count("DeleteVolume") != 1 {
				t.Errorf("calls %v", w.Driver.Calls())
			}
		})
	}
}

// A volume that differs from its class is provisioned, and an event tells the user.
func TestAnswer_warningsAreEventsOfTheClaim(t *testing.T) {
	w := newWorld(t, newClass())
	w.Driver.Warnings = map[string]string{"CreateVolume": "100000 IOPS are read as 64000"}
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningWarning ns/a", "100000 IOPS are read as 64000")
	w.complete(1)
}

func TestAnswer_withoutAnIDIsAskedAgain(t *testing.T) {
	w := newWorld(t, newClass())
	answers := 0
	w.Driver.Creation.Answer = func(_ *csi.CreateVolumeRequest, volume *csi.Volume) {
		if answers++; answers < 3 {
			volume.VolumeId = ""
		}
	}
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", "without a volume_id")
	w.complete(1)
}

func TestAnswer_anotherClaimsVolumeIsLeftAlone(t *testing.T) {
	w := newWorld(t, append(bound("src"), newClass())...)
	w.Driver.Creation.Answer = func(_ *csi.CreateVolumeRequest, volume *csi.Volume) { volume.VolumeId = "id-pvc-uid-src" }
	w.run()
	pvc := newClaim("a")
	w.Add(pvc)
	w.event("Warning ProvisioningFailed ns/a", `which is that of PersistentVolume "pvc-uid-src"`)
	w.Delete(pvc)
	w.Never(150*time.Millisecond, func() error {
		if w.Driver.Count("DeleteVolume") > 0 || w.pv("pvc-uid-a") != nil {
			return errors.New("another claim's volume is deleted or shared")
		}
		return nil
	})
}

func TestAnswer_thatCannotBeTakenBackIsKept(t *testing.T) {
	w := newWorld(t, newClass())
	w.Driver.Creation.Answer = func(_ *csi.CreateVolumeRequest, volume *csi.Volume) { volume.CapacityBytes = 5 }
	w.Driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "DeleteVolume" {
			return csidriver.Fail(codes.Internal, "cannot")
		}
		return nil
	}
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningCleanupFailed ns/a", "cannot")
	if w.stored() != 1 {
		t.Error("the volume is there, and its intent is missing")
	}
}

func TestAnswer_ofADriverThatHangs(t *testing.T) {
	w := newWorld(t, newClass())
	var hung atomic.Bool
	w.Driver.Before = func(ctx context.Context, rpc string, request any) error {
		if rpc == "CreateVolume" && !hung.Swap(true) {
			<-ctx.Done()
			return ctx.Err()
		}
		return w.before(ctx, rpc, request)
	}
	w.run(func(env *cluster.Env, _ *Options) { env.Timeout = 50 * time.Millisecond })
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", "DeadlineExceeded")
	w.complete(1)
}

func TestSave_comparesWhatHasTheName(t *testing.T) {
	cases := []struct {
		name  string
		other *corev1.PersistentVolume
		want  string // "" if it is the very volume
	}{
		{"the very volume", newVolume("a"), ""},
		{"another claim's", newVolume("a", func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" }), "is not that of volume"},
		{"another driver's", newVolume("a", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "e.example" }), `volume "id-pvc-uid-a" of driver "e.example"`},
		{"another volume", newVolume("a", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" }), `it is of volume "other"`},
		{"a terminating one", newVolume("a", terminating, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" }), "waits for the deletion of an older PersistentVolume"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, newClass())
			added := false
			w.React("create", "persistentvolumes", func(apiserver.Request) error {
				if !added {
					added = true
					w.Put(c.other)
				}
				return nil
			})
			w.run()
			w.Add(newClaim("a"))
			if c.want == "" {
				w.event("Normal ProvisioningSucceeded ns/a")
				w.complete(1)
				return
			}
			w.event("Warning ProvisioningFailed ns/a", c.want)
			if w.Driver.Count("DeleteVolume") > 0 || w.stored() != 1 {
				t.Errorf("calls %v, %d intents", w.Driver.Calls(), w.stored())
			}
		})
	}
}

func TestSave_afterAnOlderObjectOfTheNameIsGone(t *testing.T) {
	old := newVolume("a", terminating, func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef.UID, pv.Annotations = "other", map[string]string{"pv.kubernetes.io/provisioned-by": "e.example"}
	})
	w := newWorld(t, newClass())
	added := false
	w.React("create", "persistentvolumes", func(apiserver.Request) error {
		if !added {
			added = true
			w.Put(old)
		}
		return nil
	})
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", "waits for the deletion")
	gone := old.DeepCopy()
	gone.Finalizers = nil
	if _, err := w.Core.CoreV1().PersistentVolumes().Update(w.Context(), func() *corev1.PersistentVolume {
		live := w.pv("pvc-uid-a")
		live.Finalizers = nil
		return live
	}(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.complete(1)
}

func TestSave_whatTheAPIRefusesForGoodIsTakenBack(t *testing.T) {
	w := newWorld(t, newClass())
	w.React("create", "persistentvolumes", func(q apiserver.Request) error {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "create", corev1.Resource("persistentvolumes"), q.Name, "nodeAffinity: invalid", 0, false)
	})
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", "write its PersistentVolume")
	w.gone()
}

func TestReschedule(t *testing.T) {
	gone := fmt.Errorf("%w: node %q does not exist any more", topology.ErrNodeGone, "n1")
	cases := []struct {
		name  string
		place places
		fail  error
		want  string
	}{
		{"no room at the node", places{segments: map[string]string{"node": "n1"}}, csidriver.Fail(codes.ResourceExhausted, "full"), "full"},
		{"the node is gone", places{err: gone}, nil, `node "n1" does not exist any more`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, newClass(waitForConsumer))
			w.withTopology()
			w.answer(c.fail)
			w.React("patch", "persistentvolumeclaims", func(apiserver.Request) error {
				if left := w.stored(); left > 0 {
					t.Errorf("%d intents are stored while the claim gets free for another node", left)
				}
				return nil
			})
			w.run(func(_ *cluster.Env, o *Options) { o.Topology = c.place })
			w.Add(newClaim("a", onNode("n1")))
			w.event("Warning ProvisioningFailed ns/a", c.want)
			w.Eventually(func() error {
				if node := selectedNode(w.claimNow("a")); node != "" || w.stored() > 0 {
					return fmt.Errorf("selected node %q, %d intents", node, w.stored())
				}
				return nil
			})
		})
	}
}

func TestReschedule_leavesAnotherChoiceAlone(t *testing.T) {
	w := newWorld(t, newClass())
	controller := New(w.NewEnv(), Options{})
	w.Add(newClaim("a", onNode("n2")))
	if err := controller.reschedule(w.Context(), newClaim("a", onNode("n1")), "n1"); err != nil {
		t.Fatal(err)
	}
	if node := selectedNode(w.claimNow("a")); node != "n2" {
		t.Errorf("selected node %q", node)
	}
}

// TestStale_aClaimThatWasBoundAndDeletedLongAgo is external-provisioner#1469: the cache still
// shows the claim. In the last row the watch was interrupted, and reports the creation before
// the deletion.
func TestStale_aClaimThatWasBoundAndDeletedLongAgo(t *testing.T) {
	for name, row := range map[string]struct {
		lag, running, age time.Duration
	}{
		"a process that has just started":     {time.Minute, 0, 0},
		"a process that learns of it so late": {300 * time.Millisecond, 400 * time.Millisecond, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			read := make(chan struct{}, 100)
			w.React("get", "persistentvolumeclaims", func(q apiserver.Request) error {
				read <- struct{}{}
				return apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), q.Name)
			})
			w.run(func(_ *cluster.Env, o *Options) { o.CacheLag = row.lag })
			time.Sleep(row.running)
			w.Add(newClaim("a", func(pvc *corev1.PersistentVolumeClaim) {
				pvc.CreationTimestamp = metav1.NewTime(time.Now().Add(-row.age))
			}))
			select {
			case <-read:
			case <-time.After(10 * time.Second):
				t.Fatal("the claim is not read")
			}
			w.Never(100*time.Millisecond, func() error {
				if len(w.calls()) > 0 {
					return errors.New("a volume is made for a claim that is gone")
				}
				return nil
			})
		})
	}
}

func TestStale_noSecondVolumeWhileTheCacheIsBehind(t *testing.T) {
	w := newWorld(t, newClass())
	controller, _ := w.run()
	w.Add(newClaim("a"))
	w.saved("pvc-uid-a")
	w.complete(1)
	controller.claimQueue.Add("uid-a") // the claim is still unbound in the cache
	w.Never(100*time.Millisecond, func() error {
		if len(w.calls()) != 1 {
			return errors.New("made twice")
		}
		return nil
	})
}

func TestEvents_haveNoSecrets(t *testing.T) {
	class := newClass(parameters("csi.storage.k8s.io/provisioner-secret-name", "s", "csi.storage.k8s.io/provisioner-secret-namespace", "ns"))
	w := newWorld(t, class)
	w.Add(apiserver.Secret("ns", "s", map[string]string{"password": "hunter2"}))
	w.answer(csidriver.Fail(codes.Internal, "broken"))
	w.run()
	w.Add(newClaim("a"))
	w.saved("pvc-uid-a")
	if text := strings.Join(w.Events(), "\n"); strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

func TestEvents_areShortEnoughForTheAPI(t *testing.T) {
	w := newWorld(t, newClass())
	w.answer(csidriver.Fail(codes.Internal, strings.Repeat("ä", 5000)))
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", "ää")
	for _, event := range w.Events() {
		if _, message, _ := strings.Cut(event, ": "); len(message) > cluster.MaxMessage {
			t.Errorf("a message of %d bytes", len(message))
		}
	}
}

func TestProvision_aForeignVolumeHasTheName(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" }))
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", `PersistentVolume "pvc-uid-a" exists and is not for this claim`)
}
