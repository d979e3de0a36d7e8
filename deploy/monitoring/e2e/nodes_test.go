//go:build monitoring

package e2e

import (
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// TestAlerts_ofNodes loses a node while its controllers create a volume. With controllers on
// each node, no other process completes that.
func TestAlerts_ofNodes(t *testing.T) {
	const lost, other = "node-1", "node-2"
	k := simulate(t, node(lost), csiNode(lost), node(other), csiNode(other))
	k.Driver.Plugin = append(k.Driver.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	late := fastClass()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	late.VolumeBindingMode = &mode
	k.Put(late)
	first := k.control(lost)
	repair := k.fail("CreateVolume", answers(codes.Unavailable))
	selected := func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations["volume.kubernetes.io/selected-node"] = lost }
	k.Add(claim("data", selected))
	eventually(t, "the driver is called", func() string {
		if k.Driver.Count("CreateVolume") == 0 {
			return "no call of CreateVolume"
		}
		return ""
	})
	first.process.stop()
	k.Delete(csiNode(lost))

	second := k.control(other)
	w := watch(t, second.target())
	w.fires("HoldfastIntentsUnserved")
	repair()
	k.Add(csiNode(lost))
	first.restart()
	k.provisioned("data")
	second.restart() // the intents of all nodes are listed once an hour, and when a process starts
	w.stops("HoldfastIntentsUnserved", "HoldfastTargetDown")
}
