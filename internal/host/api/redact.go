package api

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// lastApplied is where kubectl keeps what was applied, also of a Secret.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// redacted is the object without what no client may read: of a Secret, only the
// names of its values. It changes the object.
func redacted(object store.Object) store.Object {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object
	}
	for name := range secret.Data {
		secret.Data[name] = []byte{}
	}
	secret.StringData = nil
	delete(secret.Annotations, lastApplied)
	return secret
}
