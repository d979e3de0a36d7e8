package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Secrets whose key is lost can be given up with the commands of the host: one is
// applied again, or all are deleted before.
func TestSecrets_whoseKeyIsLostCanBeGivenUp(t *testing.T) {
	another := strings.Replace(aSecret, "name: s", "name: z", 1)
	lose := func(t *testing.T, manifests string) *Host {
		t.Helper()
		h := newApplier(t)
		mustApply(t, h, manifests)
		root := filepath.Dir(h.store.Path())
		if err := errors.Join(h.store.Close(), os.Remove(filepath.Join(root, store.SecretsKeyName))); err != nil {
			t.Fatal(err)
		}
		opened, err := store.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		h.store = opened
		return h
	}
	t.Run("applied again", func(t *testing.T) {
		h := lose(t, aSecret)
		mustApply(t, h, aSecret)
		if secret := stored(t, h, (*store.Tx).Secrets, "default/s"); len(secret.Data) == 0 {
			t.Error("it has no data")
		}
	})
	t.Run("deleted", func(t *testing.T) {
		h := lose(t, aSecret+"---\n"+another)
		if _, err := h.try(aSecret); err == nil || !strings.Contains(err.Error(), store.SecretsKeyName) || !strings.Contains(err.Error(), `"default/z"`) {
			t.Errorf("a new key next to Secrets that another sealed: %v", err)
		}
		for _, key := range []string{"default/s", "default/z"} {
			if deleted, err := remove(t, h, "secrets", key, api.DeleteOptions{}); err != nil || !deleted.Gone {
				t.Errorf("%s: %+v, %v", key, deleted, err)
			}
		}
		mustApply(t, h, aSecret+"---\n"+another)
	})
}
