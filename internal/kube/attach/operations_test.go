package attach

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

func TestOperations_attachmentsThatHangSinceTheyExist(t *testing.T) {
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour))
	w := newWorld(t, node("n1"), volume("pv"), volume("old"),
		attachment("coming", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = hourAgo }),
		publishedAttachment("leaving", "old", "n1", func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &hourAgo }),
		publishedAttachment("done", "old", "n1"))
	w.Env.Timeout = time.Hour
	heal := stuck(w, "ControllerPublishVolume")
	w.run()
	w.Unfinished(w.Env, attachOperation, "running", 1)
	if age := w.Metrics(w.Env)["holdfast_operation_oldest_seconds "+driverName+" attach running"]; age < 3600 || age > 3700 {
		t.Errorf("the attachment is %v s old, want an hour", age)
	}
	heal()
	w.attached("coming")
	w.Unfinished(w.Env, attachOperation, "running", 0)
}

func TestOperations_aDetachmentByTheCodeOfItsFailure(t *testing.T) {
	w := newWorld(t, node("n1"), volume("old"), publishedAttachment("leaving", "old", "n1", deleting[*storagev1.VolumeAttachment]))
	w.Env.Timeout = 10 * time.Millisecond
	heal := stuck(w, "ControllerUnpublishVolume")
	w.run()
	w.Unfinished(w.Env, detachOperation, "DeadlineExceeded", 1)
	heal()
	w.gone("leaving")
	w.Unfinished(w.Env, detachOperation, "DeadlineExceeded", 0)
}

func TestLostNodes_haveAttachmentsAndAreGoneNotReadyOrWithoutTheDriver(t *testing.T) {
	ready := func(name string, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
		}
	}
	without := node("without")
	without.Spec.Drivers = without.Spec.Drivers[:1]
	w := newWorld(t, node("fine"), node("idle"), node("unready"), node("gone"), without,
		ready("fine", corev1.ConditionTrue), ready("idle", corev1.ConditionUnknown), ready("unready", corev1.ConditionUnknown), ready("without", corev1.ConditionTrue))
	for _, name := range []string{"fine", "unready", "gone", "without"} {
		w.Add(volume("pv-"+name), publishedAttachment("va-"+name, "pv-"+name, name), publishedAttachment("more-"+name, "pv-"+name, name))
	}
	w.Add(attachment("foreign", "pv", "nowhere", func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
	nodes := w.Env.Set.Nodes()
	New(w.Env, Options{Ready: func(node string) bool { object, found := nodes.Get(node); return found && cluster.Ready(object) }})
	w.Start()
	if lost := w.Metrics(w.Env)["holdfast_lost_nodes "+driverName]; lost != 3 {
		t.Errorf("%v lost nodes, want 3", lost)
	}
}
