package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// SecretsKeyName is the file below the root directory with the key that the
// data of Secrets is encrypted with, unless another is named.
const SecretsKeyName = "secrets.key"

// keyLength is that of AES-256.
const keyLength = 32

// ErrSealed means that the data of a Secret cannot be decrypted. Who asked for the
// object has it all the same, without them: it can be deleted or applied again.
var ErrSealed = errors.New("cannot be decrypted")

// vault encrypts the data of Secrets with AES-256-GCM. A copy of the store, a
// backup say, reveals no secret without the key.
type vault struct {
	path string
	own  bool // the key is the host's own: it is made when it is first needed

	mu   sync.Mutex
	aead cipher.AEAD
}

func newVault(root, key string) *vault {
	if key == "" {
		return &vault{path: filepath.Join(root, SecretsKeyName), own: true}
	}
	return &vault{path: key}
}

// sealedSecret is a Secret as it is stored.
type sealedSecret struct {
	corev1.Secret `json:",inline"`
	// Sealed is the nonce and the encrypted JSON of data.
	Sealed []byte `json:"sealed,omitempty"`
}

// open reads the key. It makes one only to seal, and only if nothing is sealed yet:
// stored objects could not be read with a new key, and an administrator who restores
// the old key would lose the objects sealed with the new one. sealed names the sealed
// objects; it is nil to read only.
func (v *vault) open(sealed func() []string) (cipher.AEAD, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.aead != nil {
		return v.aead, nil
	}
	key, err := os.ReadFile(v.path)
	if errors.Is(err, fs.ErrNotExist) && v.own {
		if sealed == nil {
			return nil, v.missing(nil)
		}
		if names := sealed(); len(names) > 0 {
			return nil, v.missing(names)
		}
		key, err = v.makeKey()
	}
	if err != nil {
		return nil, fmt.Errorf("the key of the Secrets: %w", err)
	}
	if len(key) != keyLength {
		return nil, fmt.Errorf("the key of the Secrets, %s, has %d bytes; it has %d, as from: head -c %d /dev/urandom",
			v.path, len(key), keyLength, keyLength)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("the key of the Secrets: %w", err)
	}
	v.aead, err = cipher.NewGCMWithRandomNonce(block)
	return v.aead, err
}

// missing is the error for a missing key, with the remedy.
func (v *vault) missing(names []string) error {
	stored := ""
	switch len(names) {
	case 0:
	case 1:
		stored = fmt.Sprintf(", and the Secret %q can be read with it alone", names[0])
	default:
		stored = fmt.Sprintf(", and the Secret %q and %d more can be read with it alone", names[0], len(names)-1)
	}
	return fmt.Errorf("the key of the Secrets, %s, is missing%s: bring it back from the backup; or give up what it sealed: delete these Secrets, and apply them again", v.path, stored)
}

func (v *vault) makeKey() ([]byte, error) {
	key := make([]byte, keyLength)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(v.path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return key, durable.WriteFile(root, filepath.Base(v.path), key, 0o400)
}

// seal returns the stored form of a Secret; others names the sealed ones.
func (v *vault) seal(key string, secret *corev1.Secret, others func() []string) ([]byte, error) {
	sealed := sealedSecret{Secret: *secret}
	if len(secret.Data) > 0 {
		aead, err := v.open(others)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(secret.Data)
		if err != nil {
			return nil, fmt.Errorf("encode the Secret %q: %w", key, err)
		}
		sealed.Data, sealed.Sealed = nil, aead.Seal(nil, nil, data, []byte(key))
	}
	return json.Marshal(sealed)
}

// unseal fills in the data of a Secret that was read. The key binds the data to
// the object's name.
func (v *vault) unseal(key string, stored []byte, secret *corev1.Secret) error {
	sealed, err := sealedIn(stored)
	if err != nil || len(sealed) == 0 {
		return err
	}
	aead, err := v.open(nil)
	if err != nil {
		return fmt.Errorf("the Secret %q %w: %w", key, ErrSealed, err)
	}
	data, err := aead.Open(nil, nil, sealed, []byte(key))
	if err != nil {
		return fmt.Errorf("the Secret %q %w with %s: apply it again, or bring back the key: %w", key, ErrSealed, v.path, err)
	}
	return json.Unmarshal(data, &secret.Data)
}

// sealedIn is the encrypted part of a stored Secret, nil if it has none.
func sealedIn(stored []byte) ([]byte, error) {
	var sealed struct {
		Sealed []byte `json:"sealed"`
	}
	err := json.Unmarshal(stored, &sealed)
	return sealed.Sealed, err
}

// sealedSecrets names the Secrets with encrypted data, but one.
func (t *Tx) sealedSecrets(except string) (names []string) {
	if t.tx.Bucket([]byte(secretBucket)) == nil {
		return nil
	}
	_ = t.tx.Bucket([]byte(secretBucket)).ForEach(func(key, stored []byte) error { // the function never fails
		if data, err := sealedIn(contentOf(stored)); string(key) != except && (err != nil || len(data) > 0) {
			names = append(names, string(key))
		}
		return nil
	})
	return names
}
