package status_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/status"
	"github.com/holdfast-csi/holdfast/internal/status/statustest"
	"github.com/holdfast-csi/holdfast/internal/why"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// useCluster returns the view of a cluster, until the test ends.
func useCluster(t *testing.T, c *apiserver.Cluster) status.View {
	t.Helper()
	config, err := cluster.Config(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	source, err := status.NewCluster(config, "test")
	if err != nil {
		t.Fatal(err)
	}
	live := status.NewLive(source)
	t.Cleanup(live.Close)
	view, release, err := live.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return view
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

// life has the objects of a claim that was created in 2 s, after two failures, attached
// in 3 s and mounted for a pod that started 4 s later.
func life() []runtime.Object {
	bound := statustest.Bound("data")
	bound[0].SetCreationTimestamp(at(0))
	bound[1].SetCreationTimestamp(at(2))
	pod := statustest.Pod("web", "data")
	pod.CreationTimestamp, pod.Spec.NodeName = at(1), "node1"
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(3)}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(10)}},
		}},
	}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attachment", CreationTimestamp: at(3)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: statustest.Driver, NodeName: "node1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pvc-data")},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	return []runtime.Object{
		bound[0], bound[1], pod, attachment,
		event("PersistentVolumeClaim", "data", "ProvisioningFailed", "no room", 2, 1),
		event("Pod", "web", "SuccessfulAttachVolume", `AttachVolume.Attach succeeded for volume "pvc-data"`, 1, 6),
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: statustest.Driver}},
		&storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: "node1"},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: statustest.Driver, NodeID: "n1"}}},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
	}
}

func event(kind, name, reason, message string, count int32, seconds int) *corev1.Event {
	severity := corev1.EventTypeWarning
	if strings.HasPrefix(reason, "Successful") {
		severity = corev1.EventTypeNormal
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name + "." + reason},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "default", Name: name, UID: ""},
		Reason:         reason, Message: message, Type: severity, Count: count, FirstTimestamp: at(seconds), LastTimestamp: at(seconds),
	}
}

func texts(w status.Waterfall) string {
	var all []string
	for _, bar := range w.Bars {
		all = append(all, fmt.Sprintf("%s %s %v after %d failures", bar.Step, bar.Status, bar.End.Sub(bar.Begin), bar.Failures()))
	}
	return strings.Join(all, ", ")
}

// A cluster has no journal: its steps are read from timestamps and events.
func TestCluster_stepsAreThoseOfTimestamps(t *testing.T) {
	view := useCluster(t, apiserver.New(t, csidriver.New(statustest.Driver), life()...))
	for ref, want := range map[status.Ref]string{
		{Kind: status.Claim, Namespace: "default", Name: "data"}: "create done 2s after 2 failures, attach done 3s after 0 failures",
		{Kind: status.Pod, Namespace: "default", Name: "web"}:    "schedule done 2s after 0 failures, attach done 3s after 0 failures, start done 7s after 0 failures",
		{Kind: status.Volume, Name: "pvc-data"}:                  "attach done 3s after 0 failures",
	} {
		page := view.Page(t.Context(), ref)
		if got := texts(page.Steps); got != want || !page.FromEvents || page.WhyError != "" {
			t.Errorf("%s: got %s, want %s (%+v)", ref, got, want, page.WhyError)
		}
	}
	drivers := view.Drivers()
	if len(drivers) != 1 || !drivers[0].Healthy || drivers[0].Nodes != 1 {
		t.Errorf("the drivers are %+v", drivers)
	}
	if o := view.Overview(t.Context()); len(o.Waiting) != 0 || len(o.Problems) != 0 {
		t.Errorf("waits: %+v; problems: %v", o.Waiting, o.Problems)
	}
}

func TestCluster_followsAndExplains(t *testing.T) {
	c := apiserver.New(t, csidriver.New(statustest.Driver), life()...)
	view := useCluster(t, c)
	pending := statustest.Claim("waits")
	c.Add(pending, event("PersistentVolumeClaim", "waits", "ProvisioningFailed", "rpc error: code = ResourceExhausted desc = no room", 3, 1))
	ref := status.Ref{Kind: status.Claim, Namespace: "default", Name: "waits"}
	until(t, view, "the claim with its failure", func() bool {
		page := view.Page(t.Context(), ref)
		return strings.HasPrefix(texts(page.Steps), "create retrying") && slices.ContainsFunc(page.Report.Findings, func(f why.Finding) bool { return f.Code == "ResourceExhausted" && f.Attempts == 3 })
	})
	c.Delete(pending)
	until(t, view, "the deletion", func() bool { return !view.Page(t.Context(), ref).Exists })
}

// What may not be read is named, and the rest is shown.
func TestCluster_namesWhatItMayNotRead(t *testing.T) {
	c := apiserver.New(t, csidriver.New(statustest.Driver), life()...)
	c.React("list", "pods", func(apiserver.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	})
	c.React("watch", "pods", func(apiserver.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	})
	view := useCluster(t, c)
	if problems := view.Problems(); !slices.Equal(problems, []string{"not allowed to read objects of kind Pod"}) {
		t.Errorf("the problems are %q", problems)
	}
	if rows := view.Claims(); len(rows) != 1 {
		t.Errorf("the claims are %+v", rows)
	}
}

// A cluster tells of its pools what the scheduler is told: the room of each segment.
func TestCluster_poolsAreTheRoomOfSegments(t *testing.T) {
	room := func(name, class, node, size string) *storagev1.CSIStorageCapacity {
		capacity := resource.MustParse(size)
		return &storagev1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, StorageClassName: class, Capacity: &capacity,
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"node": node}},
		}
	}
	class := func(name string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: statustest.Driver}
	}
	view := useCluster(t, apiserver.New(t, csidriver.New(statustest.Driver), class("thick"), class("thin"),
		room("a", "thick", "n1", "10Gi"), room("b", "thin", "n1", "10Gi"), room("c", "thin", "n2", "0"), room("d", "deleted", "n2", "1Gi"),
		&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "e"}, StorageClassName: "thin"}))
	var got []string
	for _, pool := range view.Pools() {
		got = append(got, fmt.Sprintf("%s %d %s %s", pool.Name, pool.Available>>30, pool.Classes, pool.Level()))
	}
	if len(view.Pools()) > 0 && view.Pools()[0].Driver != statustest.Driver {
		t.Errorf("the driver is %s", view.Pools()[0].Driver)
	}
	if want := "[node=n2 0 thin bad node=n1 10 thick, thin good]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
