package host

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// smbRecord is the state of a mapping that Windows does not report: its user and its
// holders. It has no password, only a hash that proves one; only administrators of the
// machine can read it.
type smbRecord struct {
	Share    string // \\server\share
	Username string
	Salt     []byte
	Rounds   int
	Proof    []byte // PBKDF2-HMAC-SHA256 of the password
	Privacy  bool   // encryption was required
	// Made is set once the mapping was seen. Without it, an existing mapping may be an
	// older one.
	Made bool
	// Holders are the links of the mounts that use the mapping, and one "" for all
	// mounts without a link: a repeated call of such a mount cannot be told from a second
	// mount.
	Holders []string
}

const (
	proofRounds = 210_000 // about 0.1 s
	proofLength = 32
	saltLength  = 16
)

func smbRecordName(share string) string {
	sum := sha256.Sum256([]byte(share))
	return "smb-" + hex.EncodeToString(sum[:16])
}

// newSMBRecord returns the record of a mapping that is about to be made.
func (p *proofs) newSMBRecord(share string, mount api.SMBMount, privacy bool, holders []string) (smbRecord, error) {
	r := smbRecord{
		Share: share, Username: mount.Username, Salt: make([]byte, saltLength), Rounds: p.rounds, Privacy: privacy,
		Holders: slices.Clone(holders),
	}
	_, _ = rand.Read(r.Salt) // never fails
	var err error
	if r.Proof, err = prove(mount.Password, r); err == nil {
		p.seen.Store(p.digest(mount.Password, r), struct{}{})
	}
	return r, err
}

func prove(password api.Secret, r smbRecord) ([]byte, error) {
	proof, err := pbkdf2.Key(sha256.New, password.Reveal(), r.Salt, r.Rounds, proofLength)
	if err != nil {
		return nil, fmt.Errorf("hash the password of an SMB share: %w", err)
	}
	return proof, nil
}

// sameUser compares names as Windows does.
func (r smbRecord) sameUser(mount api.SMBMount) bool {
	return strings.EqualFold(r.Username, mount.Username)
}

// add adds a holder.
func (r *smbRecord) add(local string) {
	if !slices.ContainsFunc(r.Holders, func(h string) bool { return strings.EqualFold(h, local) }) {
		r.Holders = append(r.Holders, local)
	}
}

// drop removes a holder.
func (r *smbRecord) drop(local string) {
	r.Holders = slices.DeleteFunc(r.Holders, func(h string) bool { return strings.EqualFold(h, local) })
}

// others reports whether the mapping has another holder.
func (r smbRecord) others(local string) bool {
	return slices.ContainsFunc(r.Holders, func(h string) bool { return !strings.EqualFold(h, local) })
}

// proofs cache, for this process, the passwords that matched a record: the slow hash is
// computed once for each mapping, not for each mount. The cache has keyed digests only.
type proofs struct {
	rounds int
	key    [32]byte
	seen   sync.Map // digest → struct{}
}

func newProofs() *proofs {
	p := &proofs{rounds: proofRounds}
	_, _ = rand.Read(p.key[:]) // never fails
	return p
}

func (p *proofs) digest(password api.Secret, r smbRecord) [sha256.Size]byte {
	mac := hmac.New(sha256.New, p.key[:])
	for _, field := range [][]byte{r.Salt, r.Proof, []byte(password.Reveal())} { // the first two have fixed lengths
		mac.Write(field)
	}
	return [sha256.Size]byte(mac.Sum(nil))
}

// proven reports whether a password is that of a record.
func (p *proofs) proven(password api.Secret, r smbRecord) (bool, error) {
	if r.Rounds <= 0 || len(r.Salt) == 0 || len(r.Proof) != proofLength {
		return false, nil
	}
	digest := p.digest(password, r)
	if _, seen := p.seen.Load(digest); seen {
		return true, nil
	}
	proof, err := prove(password, r)
	if err != nil || subtle.ConstantTimeCompare(proof, r.Proof) != 1 {
		return false, err
	}
	p.seen.Store(digest, struct{}{})
	return true, nil
}
