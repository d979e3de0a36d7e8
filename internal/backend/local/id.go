package local

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// An ID is a prefix and 32 hexadecimal digits of the SHA-256 of the name that
// the CO gave. Inline handles look like "csi-" and 64 digits and cannot be
// mistaken for one.
const (
	volumePrefix    = "vol-"
	ephemeralPrefix = "eph-"
	snapshotPrefix  = "snap-"
	groupPrefix     = "grp-"
)

var idForm = regexp.MustCompile(`^(vol|eph|snap|grp)-[0-9a-f]{32}$`)

func idOf(prefix, name string) string {
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:16])
}

// memberID is the ID of the snapshot of one volume in a group. A NUL cannot
// occur in a name (CSI spec 1.13, "Size Limits" and naming), so that a snapshot outside
// of a group cannot have the same ID.
func memberID(group, source string) string {
	return idOf(snapshotPrefix, group+"\x00"+source)
}

// isID reports whether a string from outside is an ID of that kind, and thereby
// safe as the name of a directory.
func isID(prefix, id string) bool {
	return strings.HasPrefix(id, prefix) && idForm.MatchString(id)
}

// isVolumeID accepts inline volumes too.
func isVolumeID(id string) bool {
	return isID(volumePrefix, id) || isID(ephemeralPrefix, id)
}
