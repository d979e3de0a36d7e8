package resize

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func attachment() *storagev1.VolumeAttachment {
	volume := "pv-1"
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "node-7", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

func pod(phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till"}, Status: corev1.PodStatus{Phase: phase},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func condUnused(status corev1.ConditionStatus) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		if c := condition(pvc, corev1.PersistentVolumeClaimUnused); c != nil {
			c.Status = status
			return
		}
		pvc.Status.Conditions = append(pvc.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimUnused, Status: status})
	}
}

func TestInUse_waitsUntilTheVolumeIsDetached(t *testing.T) {
	w := newWorld(t, attachment())
	w.driver.Changes.Offline = true
	w.driver.SetAttached("handle-1", "node-7", true)
	w.run(Options{Attachments: true})
	w.change(asking(3))
	w.hasEvent("VolumeResizeFailed", "published to a node") // the driver's words
	w.hasEvent("VolumeResizeFailed", "used by node node-7") // ours
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "published to a node")
	w.reaches(inProgress, 3)
	w.staysAt(expandRPC, 1)
	w.driver.SetAttached("handle-1", "node-7", false)
	w.Delete(attachment())
	w.reaches(nodePending, 3)
}

func TestInUse_aDetachmentRequeuesAtOnce(t *testing.T) {
	w := newWorld(t, attachment())
	w.driver.Changes.Offline = true
	w.driver.SetAttached("handle-1", "node-7", true)
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour
	w.run(Options{Attachments: true})
	w.change(asking(3))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "published to a node")
	w.driver.SetAttached("handle-1", "node-7", false)
	w.Delete(attachment())
	w.reaches(nodePending, 3)
}

func TestInUse_aLowerRequestReplacesTheRefusedSize(t *testing.T) {
	w := newWorld(t, attachment())
	w.driver.Changes.Offline = true
	w.driver.SetAttached("handle-1", "node-7", true)
	w.run(Options{Attachments: true})
	w.change(asking(10))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "published to a node")
	w.change(asking(4))
	w.reaches(inProgress, 4)
	w.driver.SetAttached("handle-1", "node-7", false)
	w.Delete(attachment())
	w.reaches(nodePending, 4)
}

func TestInUse_canBeIgnored(t *testing.T) {
	w := newWorld(t, attachment())
	w.always(expandRPC, csidriver.Fail(codes.FailedPrecondition, "in use"))
	w.run(Options{Attachments: true, IgnoreInUse: true})
	w.change(asking(3))
	w.called(expandRPC, 3)
}

func TestInUse_listsPodsOnlyAfterARefusal(t *testing.T) {
	w := newWorld(t, pod(corev1.PodRunning))
	var listed atomic.Int32
	w.React("list", "pods", func(q apiserver.Request) error {
		listed.Add(1)
		if q.Namespace != "shop" {
			return fmt.Errorf("pods of namespace %q", q.Namespace)
		}
		return nil
	})
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
	w.kubelet()
	if n := listed.Load(); n > 0 {
		t.Fatalf("pods were listed %d times for a driver that did not refuse", n)
	}
	w.always(expandRPC, csidriver.Fail(codes.FailedPrecondition, "in use"))
	w.change(asking(5))
	w.hasEvent("VolumeResizeFailed", "used by pod till")
	w.staysAt(expandRPC, 2)
	w.always(expandRPC, nil)
	w.Put(pod(corev1.PodSucceeded))
	w.reaches(nodePending, 5)
}

func TestInUse_withoutTheRightToListPodsRetries(t *testing.T) {
	w := newWorld(t, pod(corev1.PodRunning))
	var listed atomic.Int32
	w.React("list", "pods", func(apiserver.Request) error {
		listed.Add(1)
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("not granted"))
	})
	w.always(expandRPC, csidriver.Fail(codes.FailedPrecondition, "in use"))
	w.run()
	w.change(asking(3))
	w.called(expandRPC, 4)
	if n := listed.Load(); n != 1 {
		t.Errorf("pods were asked for %d times", n)
	}
	w.always(expandRPC, nil)
	w.reaches(nodePending, 3)
}

func TestInUse_theConditionUnusedIsEnough(t *testing.T) {
	w := newWorld(t)
	w.React("list", "pods", func(apiserver.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("not granted"))
	})
	w.Put(dataClaim(condUnused(corev1.ConditionFalse)))
	w.Env.Retry.Start, w.Env.Retry.Max = 20*time.Millisecond, 20*time.Millisecond
	w.always(expandRPC, csidriver.Fail(codes.FailedPrecondition, "in use"))
	w.run()
	w.change(asking(3))
	w.hasEvent("VolumeResizeFailed", "condition Unused is False")
	w.staysAt(expandRPC, 1)
	w.always(expandRPC, nil)
	w.change(condUnused(corev1.ConditionTrue), "status")
	w.reaches(nodePending, 3)
	if condition(w.claim(), corev1.PersistentVolumeClaimUnused) == nil {
		t.Error("another writer's condition was dropped")
	}
}

func TestInUse_aRefusalExpires(t *testing.T) {
	w := newWorld(t, attachment())
	c, _ := w.runIn(w.Env, Options{Attachments: true})
	s, found := c.subject("shop/data")
	if !found {
		t.Fatal("no claim")
	}
	for refused, used := range map[time.Duration]bool{0: true, time.Hour + time.Minute: false} {
		c.memories.change(s.claim.UID, func(m *memory) { m.expand.InUse = time.Now().Add(-refused) })
		if by := c.usedBy(t.Context(), s); (by != "") != used {
			t.Errorf("%s after the refusal: used by %q", refused, by)
		}
	}
}

func TestUses(t *testing.T) {
	ephemeral := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Name = name
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}
	}
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		claim string
		want  bool
	}{
		{"running", pod(corev1.PodRunning), "data", true},
		{"pending", pod(corev1.PodPending), "data", true},
		{"succeeded", pod(corev1.PodSucceeded), "data", false},
		{"failed", pod(corev1.PodFailed), "data", false},
		{"another claim", pod(corev1.PodRunning), "other", false},
		{"its own ephemeral claim", pod(corev1.PodRunning, ephemeral("web")), "web-data", true},
		{"another's ephemeral claim", pod(corev1.PodRunning, ephemeral("web")), "data", false},
	} {
		if got := uses(c.pod, c.claim); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
