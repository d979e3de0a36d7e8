package attach

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// stuck makes an RPC hang until the test ends, or heal is called.
func stuck(w *world, rpc string) (heal func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	w.driver.Before = func(call context.Context, name string, _ any) error {
		if name == rpc {
			select {
			case <-ctx.Done():
			case <-call.Done():
			}
		}
		return nil
	}
	return cancel
}

func TestQueues_detachmentsThatHangBlockNoAttachment(t *testing.T) {
	w := newWorld(t, node("n0"), node("n1"), node("n2"))
	w.Env.Workers, w.Env.Timeout = 4, time.Hour
	stuck(w, "ControllerUnpublishVolume")
	var leaving []*storagev1.VolumeAttachment
	for i := range 50 {
		leaving = append(leaving, publishedAttachment(fmt.Sprintf("leaving-%d", i), fmt.Sprintf("old-%d", i), fmt.Sprint("n", i%3)))
		w.Add(leaving[i], volume(fmt.Sprintf("new-%d", i)))
	}
	w.run()
	for i, va := range leaving {
		w.Delete(va)
		w.Add(attachment(fmt.Sprintf("coming-%d", i), fmt.Sprintf("new-%d", i), "n1"))
	}
	for i := range leaving {
		w.attached(fmt.Sprintf("coming-%d", i))
	}
	w.hanging("ControllerUnpublishVolume", 3) // a worker may be left for another node
	if n := w.driver.Count("ControllerUnpublishVolume"); n > 4 {
		t.Errorf("%d detachments hang, more than there are workers", n)
	}
}

func TestQueues_attachmentsThatHangBlockNoDetachment(t *testing.T) {
	w := newWorld(t, node("n1"))
	w.Env.Workers, w.Env.Timeout = 4, time.Hour
	stuck(w, "ControllerPublishVolume")
	var leaving []*storagev1.VolumeAttachment
	for i := range 50 {
		leaving = append(leaving, publishedAttachment(fmt.Sprintf("leaving-%d", i), fmt.Sprintf("old-%d", i), "n1"))
		w.Add(leaving[i], volume(fmt.Sprintf("new-%d", i)))
	}
	w.run()
	for i, va := range leaving {
		w.Add(attachment(fmt.Sprintf("coming-%d", i), fmt.Sprintf("new-%d", i), "n1"))
		w.Delete(va)
	}
	for _, va := range leaving {
		w.gone(va.Name)
	}
}

// hangAt makes an RPC hang for requests of which the condition is true.
func hangAt[T any](w *world, hangs func(T) bool) {
	w.driver.Before = func(ctx context.Context, _ string, request any) error {
		if request, ok := request.(T); ok && hangs(request) {
			<-ctx.Done()
		}
		return nil
	}
}

// hanging waits until an RPC hangs at least so often.
func (w *world) hanging(rpc string, times int) {
	w.t.Helper()
	w.Eventually(func() error {
		if n := w.driver.Count(rpc); n < times {
			return fmt.Errorf("%d calls of %s hang, not %d", n, rpc, times)
		}
		return nil
	})
}

func ofClass(class string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = class }
}

func TestQueues_aClassThatHangsBlocksNoOther(t *testing.T) {
	w := newWorld(t, node("n0"), node("n1"), node("n2"), volume("pv", ofClass("fast")), volume("old", ofClass("fast")))
	w.Env.Workers, w.Env.Timeout = 4, time.Hour
	hangAt(w, func(q *csi.ControllerPublishVolumeRequest) bool {
		return strings.HasPrefix(q.GetVolumeId(), "handle-slow")
	})
	for i := range 30 {
		name := fmt.Sprint("slow-", i)
		w.Add(volume(name, ofClass("slow")), attachment(name, name, fmt.Sprint("n", i%3)))
	}
	w.run()
	w.hanging("ControllerPublishVolume", 3)
	w.Add(attachment("va", "pv", "n1"))
	w.attached("va")
}

func TestQueues_aNodeThatHangsBlocksNoOther(t *testing.T) {
	w := newWorld(t, node("n1"))
	w.Env.Workers, w.Env.Timeout = 4, time.Hour
	hangAt(w, func(q *csi.ControllerUnpublishVolumeRequest) bool { return q.GetNodeId() == "id-lost" })
	var lost []*storagev1.VolumeAttachment
	for i := range 30 {
		name := fmt.Sprint("lost-", i)
		lost = append(lost, publishedAttachment(name, name, "lost"))
		w.Add(lost[i], volume(name))
	}
	va := publishedAttachment("va", "pv", "n1")
	w.Add(va, volume("pv"))
	w.run()
	for _, va := range lost {
		w.Delete(va)
	}
	w.hanging("ControllerUnpublishVolume", 2)
	w.Delete(va)
	w.gone("va")
}

func TestBacklog_countsWhatWaitsAndItsAge(t *testing.T) {
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour))
	w := newWorld(t,
		attachment("waits", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = hourAgo }),
		attachment("waits-too", "pv", "n1"),
		publishedAttachment("leaves", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &hourAgo }),
		publishedAttachment("done", "pv", "n1"),
		attachment("foreign", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
	New(w.Env, Options{})
	w.Start()
	want := map[string]float64{
		"holdfast_attachments_pending attach": 2, "holdfast_attachments_pending detach": 1,
		"holdfast_attachments_oldest_seconds attach": 3600, "holdfast_attachments_oldest_seconds detach": 3600,
	}
	for name, value := range gather(t, w) {
		if expected, ok := want[name]; ok && (value < expected || value > expected+60) {
			t.Errorf("%s is %v, not %v", name, value, expected)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

func gather(t *testing.T, w *world) map[string]float64 {
	t.Helper()
	registry, ok := w.Env.Registerer.(*prometheus.Registry)
	if !ok {
		t.Fatal("the test's registerer is not a registry")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetType() != dto.MetricType_GAUGE {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "operation" {
					values[family.GetName()+" "+label.GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
	}
	return values
}

func TestRun_aStandbyDoesNothingUntilItHasTheLease(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	standby := New(w.Env, Options{Reconcile: -1})
	w.Start()
	w.Add(attachment("va", "pv", "n1"))
	w.Never(50*time.Millisecond, func() error {
		if n := standby.attaching.Len(); n > 0 || len(w.driver.Calls()) > 0 {
			return fmt.Errorf("%d waiting, calls %q", n, w.driver.Calls())
		}
		return nil
	})
	w.Run(w.Env, standby)
	w.attached("va")
}

func TestRun_endsWhileTheDriverHangs(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.Env.Timeout = time.Minute
	stuck(w, "ControllerPublishVolume")
	stop := w.run()
	w.Add(attachment("va", "pv", "n1"))
	w.Eventually(func() error {
		if w.driver.Count("ControllerPublishVolume") == 0 {
			return fmt.Errorf("not called")
		}
		return nil
	})
	stop()
	if shown := w.attachment("va").Status.AttachError; shown != nil {
		t.Errorf("the end of the process is shown as %+v", shown)
	}
}

// An attachment that its driver refused while the volume was attached to
// another node is retried at once, not after its pause.
func TestQueues_detachmentWakesTheAttachmentThatWaitedForIt(t *testing.T) {
	old := publishedAttachment("old", "pv", "n1")
	w := newWorld(t, volume("pv"), node("n1"), node("n2"), old, attachment("new", "pv", "n2"))
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour
	w.driver.SetAttached("handle-pv", "id-n1", true)
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "ControllerPublishVolume" && len(w.driver.Attachments()) > 0 {
			return csidriver.Fail(codes.FailedPrecondition, "attached to another node")
		}
		return nil
	}
	w.run()
	w.fails("new")
	w.Delete(old)
	w.gone("old")
	w.attached("new")
}
