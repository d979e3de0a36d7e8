package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const hidden = "correct horse battery staple"

func putSecret(s *Store, label string) error {
	return s.Update(func(tx *Tx) error {
		return tx.Secrets().Put("default/s", &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", Labels: map[string]string{"l": label}},
			Data:       map[string][]byte{"password": []byte(hidden)},
		})
	})
}

func TestSecrets_areReadableWithTheKeyOnly(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	watch := s.Watch(0)
	if err := putSecret(s, "1"); err != nil {
		t.Fatal(err)
	}
	if err := putSecret(s, "1"); err != nil { // no change, though the nonce differs
		t.Fatal(err)
	}
	err := s.View(func(tx *Tx) error {
		if v := tx.Version(); v != 1 {
			t.Errorf("version %d after one change", v)
		}
		secret, err := tx.Secrets().Get("default/s")
		if err != nil {
			return err
		}
		if string(secret.Data["password"]) != hidden {
			t.Errorf("got %v", secret.Data)
		}
		kind, _ := KindOf("secrets")
		object, err := tx.Objects(kind).Get("default/s")
		if err == nil && string(object.(*corev1.Secret).Data["password"]) != hidden {
			t.Error("a generic reader got no data: writing it back would lose them")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := watch.Next(t.Context())
	if err != nil || len(changes) != 1 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	if object, err := changes[0].Object(); err != nil || len(object.(*corev1.Secret).Data) > 0 {
		t.Errorf("who watches is told %v, %v", object, err)
	}
	raw, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{hidden, "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ"} {
		if bytes.Contains(raw, []byte(text)) {
			t.Errorf("the file has %q", text)
		}
	}
	if info, err := os.Stat(filepath.Join(root, SecretsKeyName)); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the key: %v, %v", info, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	loseTheKey(t, root)
}

// Without the key the data are gone, which is said, and no new key is made up
// for reading.
func loseTheKey(t *testing.T, root string) {
	t.Helper()
	if err := os.Remove(filepath.Join(root, SecretsKeyName)); err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	err := s.View(func(tx *Tx) error {
		_, err := tx.Secrets().Get("default/s")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), SecretsKeyName) {
		t.Errorf("got %v; want an error that names the key", err)
	}
	if _, err := os.Stat(filepath.Join(root, SecretsKeyName)); err == nil {
		t.Error("a key was made for reading")
	}
	if err := putSecret(s, "2"); err != nil {
		t.Errorf("apply it again, as the error says: %v", err)
	}
}
