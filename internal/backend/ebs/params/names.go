// Package params reads the parameters of StorageClasses, VolumeAttributesClasses and
// VolumeSnapshotClasses for EBS volumes and snapshots. The keys are those of the AWS EBS
// CSI driver, so that manifests written for it keep working.
//
// One parser serves creation and modification, so that a VolumeAttributesClass may have
// the same parameters in both.
package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// The keys of a volume, as error messages spell them.
const (
	keyType             = "type"
	keyIOPS             = "iops"
	keyIOPSPerGB        = "iopsPerGB"
	keyRaise            = "allowAutoIOPSPerGBIncrease"
	keyKeepRatio        = "allowAutoIOPSIncreaseOnModify"
	keyThroughput       = "throughput"
	keyEncrypted        = "encrypted"
	keyKMSKeyID         = "kmsKeyId"
	keyInitRate         = "volumeInitializationRate"
	keyWaitInitialized  = "blockAttachUntilInitialized"
	keyBlockSize        = "blockSize"
	keyInodeSize        = "inodeSize"
	keyBytesPerInode    = "bytesPerInode"
	keyInodes           = "numberOfInodes"
	keyBigAlloc         = "ext4BigAlloc"
	keyClusterSize      = "ext4ClusterSize"
	keyEncryption       = "ext4EncryptionSupport"
	keyFSType           = "fstype"       // deprecated: the capability has it
	keyBlockExpress     = "blockExpress" // deprecated: every io2 volume is one
	keyVolumeType       = "volumeType"   // deprecated spelling of type
	prefixTag           = "tagSpecification"
	prefixUntag         = "tagDeletion"
	everyKeyWith        = "*" // how Traits marks a prefix
	withoutSuffix       = "_" // normalizes a prefix without a suffix
	keyFastRestoreZones = "fastSnapshotRestoreAvailabilityZones"
	keyOutpostARN       = "outpostArn"
	keyLockMode         = "lockMode"
	keyLockDuration     = "lockDuration"
	keyLockExpiration   = "lockExpirationDate"
	keyLockCoolOff      = "lockCoolOffPeriod"
)

// Names are the keys of a StorageClass that MutableNames does not have, in the form of
// backend.Traits.
func Names() []string {
	return []string{
		keyRaise, keyEncrypted, keyKMSKeyID, keyInitRate, keyWaitInitialized,
		keyBlockSize, keyInodeSize, keyBytesPerInode, keyInodes, keyBigAlloc, keyClusterSize, keyEncryption,
		keyFSType, keyBlockExpress,
	}
}

// MutableNames are the keys of a VolumeAttributesClass, in the form of
// backend.Traits.
func MutableNames() []string {
	return []string{
		keyType, keyIOPS, keyIOPSPerGB, keyKeepRatio, keyThroughput,
		prefixTag + everyKeyWith, prefixUntag + everyKeyWith,
	}
}

// Normalize changes every key of both maps to its one spelling. Two keys of one map that
// differ only in their spelling are ErrInvalid, because it would be chance which one is
// used. A lenient reading accepts them if they have one value, and prefers type to
// volumeType. Unknown keys stay.
func Normalize(parameters, mutable map[string]string, how Reading) (map[string]string, map[string]string, error) {
	names := slices.Concat(Names(), MutableNames())
	plain, err := fold("parameters", parameters, names, how)
	if err != nil {
		return nil, nil, err
	}
	changeable, err := fold("mutable_parameters", mutable, names, how)
	return plain, changeable, err
}

func fold(field string, given map[string]string, names []string, how Reading) (map[string]string, error) {
	if given == nil {
		return nil, nil
	}
	folded, from := make(map[string]string, len(given)), make(map[string]string, len(given))
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name := spelling(key, names)
		if other, taken := from[name]; taken {
			// In the order of the keys, volumeType comes after type.
			if how == Lenient && (given[other] == given[key] || other == keyType && key == keyVolumeType) {
				continue
			}
			return nil, fmt.Errorf("%w: %s: %q and %q are the same key; leave one out",
				backend.ErrInvalid, field, other, key)
		}
		from[name], folded[name] = key, given[key]
	}
	return folded, nil
}

// spelling is the one spelling of a key, whose case is ignored. The suffix that
// distinguishes the keys of tags stays.
func spelling(key string, names []string) string {
	if strings.EqualFold(key, keyVolumeType) {
		return keyType
	}
	for _, name := range names {
		prefix, isPrefix := strings.CutSuffix(name, everyKeyWith)
		switch {
		case strings.EqualFold(key, name):
			return name
		case isPrefix && strings.EqualFold(key, prefix):
			return prefix + withoutSuffix
		case isPrefix && len(key) > len(prefix) && strings.EqualFold(key[:len(prefix)], prefix):
			return prefix + key[len(prefix):]
		}
	}
	return key
}

// Ignored reports whether a normalized key is accepted and has no effect.
func Ignored(key string) bool { return key == keyFSType || key == keyBlockExpress }
