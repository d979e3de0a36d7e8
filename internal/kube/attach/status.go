package attach

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// What the API server accepts in a VolumeAttachment's status
// (k8s.io/kubernetes/pkg/apis/storage/validation); it rejects the whole
// update if there is more.
const (
	maximumContext = 256 << 10 // bytes of all keys and values of attachmentMetadata
)

// attachedStatus returns the merge patch for a VolumeAttachment that was
// published. It deletes the keys that only the previous publish context had.
func attachedStatus(va *storagev1.VolumeAttachment, publishContext map[string]string) map[string]any {
	metadata := map[string]any{}
	for key := range va.Status.AttachmentMetadata {
		metadata[key] = nil
	}
	for key, value := range publishContext {
		metadata[key] = value
	}
	status := map[string]any{"attached": true, "attachError": nil}
	if len(metadata) > 0 {
		status["attachmentMetadata"] = metadata
	}
	return status
}

// volumeError returns an error as a status shows it. The kubelet reads the code:
// 8 (ResourceExhausted) means that the node is full (KEP-4876).
func volumeError(err error, now metav1.Time) storagev1.VolumeError {
	shown := storagev1.VolumeError{Time: now, Message: cluster.Truncate(err.Error())}
	if code, ok := client.CodeNumber(err); ok {
		shown.ErrorCode = &code
	}
	return shown
}

func sizeOf(publishContext map[string]string) int {
	size := 0
	for key, value := range publishContext {
		size += len(key) + len(value)
	}
	return size
}
