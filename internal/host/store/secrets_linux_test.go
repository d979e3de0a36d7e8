package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const hidden = "correct horse battery staple"

func putSecret(s *Store, label string) error { return putSecretOf(s, "s", label) }

func putSecretOf(s *Store, name, label string) error {
	return s.Update(func(tx *Tx) error {
		return tx.Secrets().Put("default/"+name, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"l": label}},
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
		t.Errorf("a watcher gets %v, %v", object, err)
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

// Without the key the data are lost, which the error says, and reading makes no new
// key.
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
		t.Errorf("apply it again, which discards the sealed data: %v", err)
	}
}

// The values of a ConfigMap are sealed as a Secret's are, and bound to its kind and name.
func TestConfigMaps_areReadableWithTheKeyOnly(t *testing.T) {
	s := open(t, t.TempDir())
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"},
		Data: map[string]string{"password": hidden}, BinaryData: map[string][]byte{"binary": []byte(hidden)}}
	err := errors.Join(putSecret(s, "1"), s.Update(func(tx *Tx) error { return tx.ConfigMaps().Put("default/s", config) }))
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error {
		read, err := tx.ConfigMaps().Get("default/s")
		if err == nil && (read.Data["password"] != hidden || string(read.BinaryData["binary"]) != hidden) {
			t.Errorf("got %v", read)
		}
		for _, kind := range []string{"Secret", "ConfigMap"} {
			if found, err := tx.Values(kind, "default/s"); err != nil || string(found["password"]) != hidden {
				t.Errorf("the values of the %s are %v, %v", kind, found, err)
			}
			if found, err := tx.Values(kind, "default/none"); err != nil || found != nil {
				t.Errorf("the values of no %s are %v, %v", kind, found, err)
			}
		}
		ofSecret, err := tx.get(secretBucket, "default/s")
		if err == nil && tx.vault.unseal(configMapBucket, "default/s", ofSecret, &corev1.ConfigMap{}) == nil {
			t.Error("the values of a Secret were taken for those of the ConfigMap of its name")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(s.Path())
	if err != nil || bytes.Contains(raw, []byte(hidden)) {
		t.Errorf("the file has the values, %v", err)
	}
	if err := errors.Join(s.Close(), os.Remove(filepath.Join(filepath.Dir(s.Path()), SecretsKeyName))); err != nil {
		t.Fatal(err)
	}
	report, err := Check(filepath.Dir(s.Path()))
	if err != nil || len(report.Problems) != 2 || !strings.Contains(report.Problems[0].What+report.Problems[1].What, `the ConfigMap "default/s" cannot be decrypted`) {
		t.Errorf("without the key, the check says %v, %v", report, err)
	}
}

// A store of an earlier program has no table of ConfigMaps: that is no fault of it, and it
// gets one when it is opened.
func TestOpen_addsTheTableOfConfigMaps(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := putSecret(s, "1"); err != nil {
		t.Fatal(err)
	}
	err := s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(configMapBucket)) })
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if report, err := Check(root); err != nil || len(report.Problems) > 0 {
		t.Errorf("the check says %v, %v", report, err)
	}
	s = open(t, root)
	err = s.Update(func(tx *Tx) error {
		return tx.ConfigMaps().Put("default/c", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}})
	})
	if err != nil {
		t.Error(err)
	}
}

// A new key next to Secrets that a lost one sealed would have both be needed: none
// is made until they are given up or the old one is back.
func TestSecrets_noNewKeyIsMadeWhileSealedOnesExist(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for _, name := range []string{"s", "other"} {
		if err := putSecretOf(s, name, "1"); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, SecretsKeyName)
	key, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lose := func() {
		t.Helper()
		if err := errors.Join(s.Close(), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	report, err := Check(root)
	if err != nil || len(report.Problems) != 2 || !strings.Contains(report.Problems[0].What, "bring it back from the backup") || report.Problems[0].Lost {
		t.Errorf("the check says %v, %v", report, err)
	}
	s = open(t, root)
	if err := putSecretOf(s, "new", "1"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `"default/other" and 1 more`) {
		t.Errorf("a Secret is sealed with a new key: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a new key was made")
	}
	if err := os.WriteFile(path, key, 0o400); err != nil { // from the backup
		t.Fatal(err)
	}
	if err := putSecretOf(s, "new", "1"); err != nil {
		t.Errorf("the key is back, without a restart: %v", err)
	}
	lose()
	s = open(t, root)
	err = s.Update(func(tx *Tx) error { // given up
		return errors.Join(tx.Secrets().Delete("default/s"), tx.Secrets().Delete("default/other"), tx.Secrets().Delete("default/new"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := putSecretOf(s, "new", "1"); err != nil {
		t.Errorf("with nothing sealed, a new key is made: %v", err)
	}
}

// A key that is somewhere else is looked for there.
func TestCheck_withAKeyAtAnotherPath(t *testing.T) {
	root, key := t.TempDir(), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, bytes.Repeat([]byte("k"), keyLength), 0o400); err != nil {
		t.Fatal(err)
	}
	s, err := OpenWith(root, Options{SecretsKey: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(putSecret(s, "1"), s.Close()); err != nil {
		t.Fatal(err)
	}
	if report, err := CheckWith(root, Options{SecretsKey: key}); err != nil || len(report.Problems) > 0 {
		t.Errorf("%v, %v", report, err)
	}
}
