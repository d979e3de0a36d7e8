package volumes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// secret reads the values of a secret for one call; none for nil. They are never kept,
// recorded, or put into a text.
func (m *Manager) secret(reference *corev1.SecretReference, call string) (map[string]string, error) {
	if reference == nil {
		return nil, nil
	}
	key := store.Key(reference.Namespace, reference.Name)
	values, err := m.secretValues(key)
	if err == nil && values == nil {
		err = waitFor(dependencies(dependency("secrets", key)), "",
			"the secret for %s is missing: Secret %q does not exist", call, key)
	}
	return values, err
}

// secretValues reads the values of a secret, nil if it does not exist.
func (m *Manager) secretValues(key string) (map[string]string, error) {
	secret, err := load(m, (*store.Tx).Secrets, key)
	if err != nil || secret == nil {
		return nil, err
	}
	values := map[string]string{}
	for name, value := range podvalues.In(secret) {
		values[name] = string(value)
	}
	return values, nil
}

// without reports whether a deletion continues although its secret is missing.
func without(annotations map[string]string, err error) bool {
	return lifecycle.WithoutSecret(annotations) && len(onOf(err)) > 0
}
