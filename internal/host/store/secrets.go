package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// SecretsKeyName is the file below the root directory with the key that the values of
// Secrets and ConfigMaps are encrypted with, unless another is named.
const SecretsKeyName = "secrets.key"

// keyLength is that of AES-256.
const keyLength = 32

// ErrSealed means that the values of a Secret or a ConfigMap cannot be decrypted. The
// object is returned all the same, without them: it can be deleted or applied again.
var ErrSealed = errors.New("cannot be decrypted")

// vault encrypts the values of Secrets and ConfigMaps with AES-256-GCM. A copy of the
// store, a backup say, reveals none without the key.
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
		stored = fmt.Sprintf(", and the %s can be read with it alone", names[0])
	default:
		stored = fmt.Sprintf(", and the %s and %d more can be read with it alone", names[0], len(names)-1)
	}
	return fmt.Errorf("the key of the Secrets, %s, is missing%s: bring it back from the backup; or give up what it sealed: delete these objects, and apply them again", v.path, stored)
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
