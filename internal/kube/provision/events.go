package provision

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Reasons of events, as external-provisioner has them.
const (
	reasonProvisioning  = "Provisioning"
	reasonSucceeded     = "ProvisioningSucceeded"
	reasonFailed        = "ProvisioningFailed"
	reasonCleanupFailed = "ProvisioningCleanupFailed"
	reasonFailedDelete  = "VolumeFailedDelete"
	// Of our own.
	reasonRetained = "VolumeRetained"
	reasonWarning  = "ProvisioningWarning"
)

// announceAfter is the time after which an event reports a running attempt. Most
// attempts end earlier with an event of their own, which saves a write.
const announceAfter = time.Second

func (c *Controller) warn(object runtime.Object, reason, format string, arguments ...any) {
	c.env.Recorder.Event(object, corev1.EventTypeWarning, reason, cluster.Truncate(fmt.Sprintf(format, arguments...)))
}

func (c *Controller) info(object runtime.Object, reason, format string, arguments ...any) {
	c.env.Recorder.Event(object, corev1.EventTypeNormal, reason, cluster.Truncate(fmt.Sprintf(format, arguments...)))
}

// announce writes an event if an attempt takes long; call stop at its end.
func (c *Controller) announce(pvc *corev1.PersistentVolumeClaim) (stop func() bool) {
	return time.AfterFunc(announceAfter, func() {
		c.info(pvc, reasonProvisioning, "External provisioner is provisioning volume for claim %q", pvc.Namespace+"/"+pvc.Name)
	}).Stop
}

// failed writes an event about a failed attempt and returns the error.
func (c *Controller) failed(pvc *corev1.PersistentVolumeClaim, class string, err error) error {
	c.warn(pvc, reasonFailed, "failed to provision volume with StorageClass %q: %v", class, err)
	return err
}
