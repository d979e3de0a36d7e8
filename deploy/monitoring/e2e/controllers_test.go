//go:build monitoring

package e2e

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func publishing() []csi.ControllerServiceCapability_RPC_Type {
	return []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	}
}

// TestAlerts_ofTheControllers injects one fault after another into the driver, the
// nodes and the lease of running controllers.
func TestAlerts_ofTheControllers(t *testing.T) {
	k := newKube(t)
	w := watch(t, k.target())
	k.Add(claim("data"))
	volume := k.provisioned("data")
	k.Add(attachment("data", volume.Name, nodeName))
	k.attached("data")
	w.quiet()
	for _, fault := range []struct {
		name string
		test func(*kube, *watcher)
	}{
		{"an operation that fails", operationFails},
		{"an operation that hangs", operationHangs},
		{"an attachment that does not succeed", attachmentStuck},
		{"a volume whose existence is unknown", quarantined},
		{"a volume that is not well", claimUnhealthy},
		{"health that cannot be read", healthStale},
		{"a node that is lost", nodeLost},
		{"a lease of another process", noLeader},
	} {
		t.Run(fault.name, func(t *testing.T) {
			here, there := *w, k
			here.t = t
			k.t = t
			fault.test(there, &here)
		})
	}
}

func operationFails(k *kube, w *watcher) {
	repair := k.fail("CreateVolume", answers(codes.ResourceExhausted))
	k.Add(claim("large"))
	w.fires("HoldfastOperationFails")
	repair()
	k.provisioned("large")
	w.stops("HoldfastOperationFails")
}

// operationHangs occupies all workers, so that a queue is stuck, too.
func operationHangs(k *kube, w *watcher) {
	fault, release := hangs()
	repair := k.fail("CreateVolume", fault)
	for i := range 6 {
		k.Add(claim(fmt.Sprintf("slow-%d", i)))
	}
	w.fires("HoldfastOperationHangs")
	w.fires("HoldfastQueueStuck")
	repair()
	release()
	for i := range 6 {
		k.provisioned(fmt.Sprintf("slow-%d", i))
	}
	w.stops("HoldfastOperationHangs", "HoldfastQueueStuck")
}

func attachmentStuck(k *kube, w *watcher) {
	k.Add(claim("moved"))
	volume := k.provisioned("moved")
	repair := k.fail("ControllerPublishVolume", answers(codes.Internal))
	k.Add(attachment("moved", volume.Name, nodeName))
	w.fires("HoldfastAttachmentStuck")
	repair()
	k.attached("moved")
	w.stops("HoldfastAttachmentStuck", "HoldfastOperationFails")
}

// quarantined clones a volume. The first call's answer is lost, and the driver answers its
// repetition as if the source did not exist, which does not say what the first one did.
func quarantined(k *kube, w *watcher) {
	repair := k.fail("CreateVolume", answers(codes.Unavailable))
	k.Add(claim("copy", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	}))
	before := k.Driver.Count("CreateVolume")
	eventually(k.t, "the driver is called", func() string {
		if k.Driver.Count("CreateVolume") == before {
			return "no call of CreateVolume"
		}
		return ""
	})
	repair()
	repair = k.fail("CreateVolume", answers(codes.NotFound))
	k.Delete(claim("copy"))
	w.fires("HoldfastIntentQuarantined")
	repair()
	k.restart() // a quarantined intent is retried rarely, and when the process starts
	w.stops("HoldfastIntentQuarantined", "HoldfastOperationFails")
}

func claimUnhealthy(k *kube, w *watcher) {
	handle := k.handle("data")
	k.Driver.SetHealth(handle, csidriver.Problem(csi.VolumeHealthErrorType_DEGRADED, "DiskSlow", "a disk answers slowly"))
	w.fires("HoldfastClaimUnhealthy")
	k.Driver.SetHealth(handle)
	w.stops("HoldfastClaimUnhealthy")
}

func healthStale(k *kube, w *watcher) {
	lists := k.fail("ControllerListVolumeHealth", answers(codes.Internal))
	gets := k.fail("ControllerGetVolumeHealth", answers(codes.Internal))
	w.fires("HoldfastVolumeHealthStale")
	lists()
	gets()
	w.stops("HoldfastVolumeHealthStale")
}

// nodeLost removes a node that has a volume, with all that Kubernetes knows of it.
func nodeLost(k *kube, w *watcher) {
	k.Delete(csiNode(nodeName))
	k.Delete(node(nodeName))
	w.fires("HoldfastNodeLost")
	k.Add(node(nodeName), csiNode(nodeName))
	w.stops("HoldfastNodeLost")
}

// noLeader gives the lease to a process that does not exist. The one that had it ends,
// as it must, and is started again, as the kubelet does.
func noLeader(k *kube, w *watcher) {
	lease := k.lease()
	other, long := "another", int32(3600)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &other, &long
	now := metav1.NowMicro()
	lease.Spec.RenewTime, lease.Spec.AcquireTime = &now, &now
	k.Put(lease)
	<-k.process.ended
	w.fires("HoldfastTargetDown")
	k.restart()
	w.fires("HoldfastNoLeader")
	w.stops("HoldfastTargetDown")
	free := ""
	lease.Spec.HolderIdentity = &free
	k.Put(lease)
	w.stops("HoldfastNoLeader")
}

func (k *kube) lease() *coordinationv1.Lease {
	k.t.Helper()
	list, err := k.Core.CoordinationV1().Leases("kube-system").List(k.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		k.t.Fatalf("%d leases: %v", len(list.Items), err)
	}
	return &list.Items[0]
}

func (k *kube) handle(name string) string {
	k.t.Helper()
	pv, err := k.Core.CoreV1().PersistentVolumes().Get(k.t.Context(), "pvc-uid-"+name, metav1.GetOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	return pv.Spec.CSI.VolumeHandle
}
