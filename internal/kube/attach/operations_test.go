package attach

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
