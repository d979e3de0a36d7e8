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
	reasonRetained      = "VolumeRetained" // of our own
)

// announceAfter is how long an attempt takes before an event tells of it. Most
// end before that, and their end is an event anyway: that is one write less.
const announceAfter = time.Second

func (c *Controller) warn(object runtime.Object, reason, format string, arguments ...any) {
	c.env.Recorder.Event(object, corev1.EventTypeWarning, reason, cluster.Truncate(fmt.Sprintf(format, arguments...)))
}

func (c *Controller) tell(object runtime.Object, reason, format string, arguments ...any) {
	c.env.Recorder.Event(object, corev1.EventTypeNormal, reason, cluster.Truncate(fmt.Sprintf(format, arguments...)))
}

// announce tells of an attempt that takes long; stop when it has ended.
func (c *Controller) announce(pvc *corev1.PersistentVolumeClaim) (stop func() bool) {
	return time.AfterFunc(announceAfter, func() {
		c.tell(pvc, reasonProvisioning, "External provisioner is provisioning volume for claim %q", pvc.Namespace+"/"+pvc.Name)
	}).Stop
}

// failed tells of a failed attempt, and passes the error on for the next one.
func (c *Controller) failed(pvc *corev1.PersistentVolumeClaim, class string, err error) error {
	c.warn(pvc, reasonFailed, "failed to provision volume with StorageClass %q: %v", class, err)
	return err
}
