package resize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestCrash_aFreshControllerContinues lets the controller die at each point,
// and a fresh one, without its memory, continues.
func TestCrash_aFreshControllerContinues(t *testing.T) {
	for _, node := range []bool{true, false} {
		for _, point := range []string{"resize/begun", "resize/called", "resize/volume-written"} {
			t.Run(fmt.Sprintf("%s, node part %t", point, node), func(t *testing.T) {
				w := newWorld(t)
				w.driver.Changes.NoNodeExpansion = !node
				w.Put(dataClaim(asking(10)))
				w.crashAt(point)
				w.change(asking(5)) // the user thinks again meanwhile
				w.run()
				if node {
					w.reaches(nodePending, 10)
					if pv := w.volume(); pv.Annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] != "1Gi" {
						t.Errorf("the volume: %v", pv.Annotations)
					}
					w.kubelet()
				}
				w.Eventually(func() error {
					if pvc := w.claim(); inGi(pvc.Status.Capacity) != 10 || inGi(w.volume().Spec.Capacity) != 10 || state(pvc) != "" {
						return fmt.Errorf("%+v", pvc.Status)
					}
					return nil
				})
				if sizes, _ := w.asked(); slices.Max(sizes) != 10 || slices.Min(sizes) != 10 {
					t.Errorf("asked for %v", sizes)
				}
			})
		}
	}
}

func TestCrash_aFreshControllerContinuesModifying(t *testing.T) {
	for _, point := range []string{"modify/begun", "modify/called", "modify/volume-written"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, class("gold"), class("silver"))
			w.Put(dataClaim(wanting("gold")))
			w.crashAt(point)
			w.change(wanting("silver"))
			w.run()
			w.has("silver")
			names := w.targets()
			if slices.Index(names, "silver") != len(names)-1 || names[0] != "gold" {
				t.Errorf("asked for %v: what may have been running was not finished first", names)
			}
		})
	}
}

// interfere writes the claim before those of the controller's writes of its
// status that are chosen, as the kubelet and kube-controller-manager do at such
// times.
func (w *world) interfere(chosen func(write int32) bool) (writes *atomic.Int32) {
	writes = &atomic.Int32{}
	w.React("patch", "persistentvolumeclaims", func(apiserver.Request) error {
		n := writes.Add(1)
		if !chosen(n) {
			return nil
		}
		// Not w.claim: endless interference is still at it when the test ends, which
		// is not a failure of the test.
		claims := w.Core.CoreV1().PersistentVolumeClaims("shop")
		pvc, err := claims.Get(context.Background(), "data", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pvc.Status.Conditions = append(pvc.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: foreign(n), Status: corev1.ConditionTrue})
		_, err = claims.UpdateStatus(context.Background(), pvc, metav1.UpdateOptions{})
		return err
	})
	return writes
}

// foreign is the condition that another client wrote before a write.
func foreign(write int32) corev1.PersistentVolumeClaimConditionType {
	return corev1.PersistentVolumeClaimConditionType(fmt.Sprintf("example.com/Condition%d", write))
}

func TestFaults_conflictsCauseNoCallAndKeepOtherConditions(t *testing.T) {
	for name, disturbed := range map[string][]int32{
		"of intents":  {1, 2, 3},
		"of outcomes": {2, 3, 6, 7}, // 1 and 5 begin what 4 and 8 end
		"of all":      {1, 3, 5, 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, class("gold"))
			w.interfere(func(n int32) bool { return slices.Contains(disturbed, n) })
			w.run()
			w.change(func(pvc *corev1.PersistentVolumeClaim) {
				asking(3)(pvc)
				wanting("gold")(pvc)
			})
			w.reaches(nodePending, 3)
			w.has("gold")
			w.staysAt(expandRPC, 1)
			w.staysAt(modifyRPC, 1)
			for _, n := range disturbed {
				if condition(w.claim(), foreign(n)) == nil {
					t.Errorf("another writer's condition before write %d was overwritten", n)
				}
			}
		})
	}
}

func TestFaults_endlessConflictsAreSlowedDown(t *testing.T) {
	w := newWorld(t)
	writes := w.interfere(func(int32) bool { return true })
	w.run()
	w.change(asking(3))
	w.Eventually(func() error {
		if writes.Load() < 3*(conflictRetries+1) {
			return errors.New("too few")
		}
		return nil
	})
	if n := w.driver.Count(expandRPC); n > 0 {
		t.Errorf("the driver was called %d times before what it was to do was written", n)
	}
}

// TestFaults_aCallWhoseOutcomeIsNotWrittenIsRepeatedAfterTheBackoff: a driver's call is
// never repeated at once, also not because an object has changed or is gone.
func TestFaults_aCallWhoseOutcomeIsNotWrittenIsRepeatedAfterTheBackoff(t *testing.T) {
	volumes, claims := corev1.Resource("persistentvolumes"), corev1.Resource("persistentvolumeclaims")
	for name, row := range map[string]struct {
		resource string
		answer   error
		failed   error // the driver's answer
	}{
		"the PersistentVolume is never accepted": {
			volumes.Resource, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), "pv-1", nil), nil,
		},
		"the PersistentVolume is gone":       {volumes.Resource, apierrors.NewNotFound(volumes, "pv-1"), nil},
		"the PersistentVolume has a new UID": {volumes.Resource, apierrors.NewConflict(volumes, "pv-1", errors.New("uid differs")), nil},
		"the claim changes after a success":  {claims.Resource, apierrors.NewConflict(claims, "data", errors.New("changed")), nil},
		"the claim changes after a failure": {
			claims.Resource, apierrors.NewConflict(claims, "data", errors.New("changed")), csidriver.Fail(codes.OutOfRange, "too much"),
		},
	} {
		for rpc, change := range map[string]func(*corev1.PersistentVolumeClaim){expandRPC: asking(3), modifyRPC: wanting("gold")} {
			t.Run(rpc+": "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, class("gold"))
				w.Env.Retry = work.Retry{Start: time.Hour, Max: time.Hour} // only the first try
				w.always(rpc, row.failed)
				w.React("patch", row.resource, func(apiserver.Request) error {
					if w.driver.Count(rpc) > 0 {
						return row.answer
					}
					return nil
				})
				c, _ := w.runIn(w.Env)
				w.change(change)
				w.Eventually(func() error {
					if c.queue.Failures("shop/data") == 0 {
						return fmt.Errorf("no retry is due after %d calls", w.driver.Count(rpc))
					}
					return nil
				})
				w.staysAt(rpc, 1)
			})
		}
	}
}

// TestFaults_aStatusThatIsNeverAcceptedIsWrittenOnceInATry: the API server's answer does
// not mean that the claim has changed.
func TestFaults_aStatusThatIsNeverAcceptedIsWrittenOnceInATry(t *testing.T) {
	w := newWorld(t)
	w.Env.Retry = work.Retry{Start: time.Hour, Max: time.Hour} // only the first try
	var patches atomic.Int32
	w.React("patch", "persistentvolumeclaims", func(apiserver.Request) error {
		patches.Add(1)
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind(), "data", nil)
	})
	c, _ := w.runIn(w.Env)
	w.change(asking(3))
	w.Eventually(func() error {
		if c.queue.Failures("shop/data") == 0 {
			return errors.New("no retry is due")
		}
		return nil
	})
	if n := patches.Load(); n != 1 {
		t.Errorf("%d patches", n)
	}
}

func TestFaults_retriesWhileTheAPIServerFails(t *testing.T) {
	failures := map[string]error{
		"500": apierrors.NewInternalError(errors.New("etcd is away")),
		"503": apierrors.NewServiceUnavailable("not now"),
		"429": apierrors.NewTooManyRequestsError("slowly"),
	}
	for name, failure := range failures {
		for _, resource := range []string{"persistentvolumeclaims", "persistentvolumes"} {
			t.Run(name+" of "+resource, func(t *testing.T) {
				w := newWorld(t, class("gold"))
				var seen atomic.Int32
				w.React("patch", resource, func(apiserver.Request) error {
					if seen.Add(1)%3 != 0 { // two of three
						return failure
					}
					return nil
				})
				w.run()
				w.change(func(pvc *corev1.PersistentVolumeClaim) {
					asking(3)(pvc)
					wanting("gold")(pvc)
				})
				w.reaches(nodePending, 3)
				w.has("gold")
				if pv := w.volume(); inGi(pv.Spec.Capacity) != 3 {
					t.Errorf("the volume has %s", pv.Spec.Capacity.Storage())
				}
			})
		}
	}
}

func TestFaults_brokenWatchesLoseNothing(t *testing.T) {
	w := newWorld(t)
	w.run()
	for n := int64(2); n < 5; n++ {
		w.BreakWatches()
		w.change(asking(n))
		w.reaches(nodePending, n)
		w.kubelet()
	}
}

func TestFaults_aClaimDeletedDuringTheCallIsNotAFailure(t *testing.T) {
	for name, answer := range map[string]error{"done": nil, "failed": csidriver.Fail(codes.Internal, "broken")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, class("gold"))
			before := w.driver.Before
			var c *Controller
			w.driver.Before = func(ctx context.Context, rpc string, request any) error {
				if rpc == modifyRPC {
					w.Delete(dataClaim())
					w.Eventually(func() error { // the controller has observed it
						if _, there := c.claims.Get("shop/data"); there || c.memories.len() > 0 {
							return errors.New("not yet")
						}
						return nil
					})
					time.Sleep(20 * time.Millisecond)
				}
				if err := before(ctx, rpc, request); err != nil {
					return err
				}
				if rpc == modifyRPC {
					return answer
				}
				return nil
			}
			c, _ = w.runIn(w.Env)
			w.change(wanting("gold"))
			w.called(modifyRPC, 1)
			w.staysAt(modifyRPC, 1)
			w.Eventually(func() error {
				if n := c.memories.len(); n > 0 {
					return fmt.Errorf("%d claims are remembered", n)
				}
				return nil
			})
			if n := c.queue.Failures("shop/data"); n > 0 {
				t.Errorf("%d failures", n)
			}
		})
	}
}

// TestFaults_everyStatusWriteIsGuarded checks the bytes of each patch.
func TestFaults_everyStatusWriteIsGuarded(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.answer(expandRPC, csidriver.Fail(codes.Internal, "broken"))
	w.answer(modifyRPC, csidriver.Fail(codes.Internal, "broken"))
	w.run()
	w.change(func(pvc *corev1.PersistentVolumeClaim) {
		asking(3)(pvc)
		wanting("gold")(pvc)
	})
	w.reaches(nodePending, 3)
	w.has("gold")
	for _, q := range w.Writes() {
		if q.Verb != "patch" || q.Resource != "persistentvolumeclaims" {
			continue
		}
		var patch struct {
			Metadata struct{ ResourceVersion, UID string }
		}
		if err := json.Unmarshal(q.Body, &patch); err != nil {
			t.Fatal(err)
		}
		if q.Subresource != "status" || patch.Metadata.ResourceVersion == "" || patch.Metadata.UID == "" {
			t.Errorf("unguarded: %s", q.Body)
		}
	}
}
