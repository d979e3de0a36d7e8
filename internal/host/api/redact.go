package api

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// lastApplied is the annotation in which kubectl keeps the applied object, also of a
// Secret.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// redacted removes the values of a Secret, which no client may read, and keeps their
// names. It changes the object.
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
