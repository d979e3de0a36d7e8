package volumes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
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

// without reports whether a deletion continues although its secret is missing.
func without(annotations map[string]string, err error) bool {
	return lifecycle.WithoutSecret(annotations) && len(onOf(err)) > 0
}
