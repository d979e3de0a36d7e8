// Package params reads what StorageClasses, VolumeAttributesClasses and
// VolumeSnapshotClasses say of EBS volumes and snapshots. The keys are those of
// the AWS EBS CSI driver, so that manifests written for it keep working.
//
// There is one parser for creation and modification, so that what a
// VolumeAttributesClass may say is the same in both.
package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// The keys of a volume, in the spelling that error messages have.
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
	keyFSType           = "fstype"       // deprecated: the capability says it
	keyBlockExpress     = "blockExpress" // deprecated: every io2 volume is one
	keyVolumeType       = "volumeType"   // deprecated spelling of type
	prefixTag           = "tagSpecification"
	prefixUntag         = "tagDeletion"
	everyKeyWith        = "*" // how Traits marks a prefix
	withoutSuffix       = "_" // what a prefix alone is normalized with
	keyFastRestoreZones = "fastSnapshotRestoreAvailabilityZones"
	keyOutpostARN       = "outpostArn"
	keyLockMode         = "lockMode"
	keyLockDuration     = "lockDuration"
	keyLockExpiration   = "lockExpirationDate"
	keyLockCoolOff      = "lockCoolOffPeriod"
)

// Names are the keys of a StorageClass that Mutable does not have, in the form
// of backend.Traits.
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

// Normalize changes every key of both maps to its one spelling. Two keys of one map
// that differ in nothing but their spelling are ErrInvalid: which of them counts
// would be chance. Unknown keys stay as they are.
func Normalize(parameters, mutable map[string]string) (map[string]string, map[string]string, error) {
	names := slices.Concat(Names(), MutableNames())
	plain, err := fold("parameters", parameters, names)
	if err != nil {
		return nil, nil, err
	}
	changeable, err := fold("mutable_parameters", mutable, names)
	return plain, changeable, err
}

func fold(field string, given map[string]string, names []string) (map[string]string, error) {
	if given == nil {
		return nil, nil
	}
	folded, from := make(map[string]string, len(given)), make(map[string]string, len(given))
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name := spelling(key, names)
		if other, taken := from[name]; taken {
			return nil, fmt.Errorf("%w: %s: %q and %q are the same key; leave one out", backend.ErrInvalid, field, other, key)
		}
		from[name], folded[name] = key, given[key]
	}
	return folded, nil
}

// spelling is the one spelling of a key, whose case means nothing. The suffix
// that makes the keys of tags different from each other stays as it is.
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

// Ignored reports whether a normalized key is accepted and means nothing.
func Ignored(key string) bool { return key == keyFSType || key == keyBlockExpress }
