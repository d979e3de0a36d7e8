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

var errSealed = errors.New("cannot be decrypted")

// vault encrypts the data of Secrets with AES-256-GCM. A copy of the store, a
// backup say, tells nobody a secret without the key.
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

// open reads the key. It makes one only to seal: with a new key, nothing that
// is stored could be read.
func (v *vault) open(toSeal bool) (cipher.AEAD, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.aead != nil {
		return v.aead, nil
	}
	key, err := os.ReadFile(v.path)
	if errors.Is(err, fs.ErrNotExist) && v.own && toSeal {
		key, err = v.makeKey()
	}
	if err != nil {
		return nil, fmt.Errorf("the key of the Secrets: %w", err)
	}
	if len(key) != keyLength {
		return nil, fmt.Errorf("the key of the Secrets, %s, has %d bytes; it has %d, as from: head -c %d /dev/urandom", v.path, len(key), keyLength, keyLength)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("the key of the Secrets: %w", err)
	}
	v.aead, err = cipher.NewGCMWithRandomNonce(block)
	return v.aead, err
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

// seal gives the stored form of a Secret.
func (v *vault) seal(key string, secret *corev1.Secret) ([]byte, error) {
	sealed := sealedSecret{Secret: *secret}
	if len(secret.Data) > 0 {
		aead, err := v.open(true)
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
	var sealed struct {
		Sealed []byte `json:"sealed"`
	}
	if err := json.Unmarshal(stored, &sealed); err != nil || len(sealed.Sealed) == 0 {
		return err
	}
	aead, err := v.open(false)
	if err != nil {
		return fmt.Errorf("the Secret %q %w: %w", key, errSealed, err)
	}
	data, err := aead.Open(nil, nil, sealed.Sealed, []byte(key))
	if err != nil {
		return fmt.Errorf("the Secret %q %w with %s: apply it again, or bring back the key: %w", key, errSealed, v.path, err)
	}
	return json.Unmarshal(data, &secret.Data)
}
