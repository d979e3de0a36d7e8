package volumes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// secret reads the values of a secret for one call; none for nil. They are
// never kept, recorded, or put into a text. call is what the secret is for.
func (m *Manager) secret(reference *corev1.SecretReference, call string) (map[string]string, error) {
	if reference == nil {
		return nil, nil
	}
	key := store.Key(reference.Namespace, reference.Name)
	var secret *corev1.Secret
	err := m.view(func(tx *store.Tx) (err error) {
		secret, err = tx.Secrets().Get(key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, waitFor(dependencies(dependency("secrets", key)), "",
			"the secret for %s is missing: there is no Secret %q", call, key)
	}
	values := map[string]string{}
	for name, value := range secret.Data {
		values[name] = string(value)
	}
	for name, value := range secret.StringData {
		values[name] = value
	}
	return values, nil
}

// without tells whether a deletion goes on although its secret is gone.
func without(annotations map[string]string, err error) bool {
	return annotations[deleteWithoutSecret] == "true" && len(onOf(err)) > 0
}

// deleteWithoutSecret, put on by an administrator, has what an object stands for
// deleted although the secret for that is gone for good.
const deleteWithoutSecret = claim.DeleteWithoutSecretAnnotation
