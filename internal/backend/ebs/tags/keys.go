// Package tags makes the tags of EBS volumes and snapshots: those by which the driver
// finds its resources, and those that users request, whose values may be templates. Keys
// and templates are those of the AWS EBS CSI driver.
package tags

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Keys of the driver's own tags.
const (
	// VolumeName and SnapshotName have the CSI name of a volume or snapshot, by which a
	// repeated creation finds it.
	VolumeName   = "CSIVolumeName"
	SnapshotName = "CSIVolumeSnapshotName"
	// Managed is "true" on the resources that the driver created. It lists only these, and
	// AWS's managed policy allows it to change only these.
	Managed = reservedPrefix + "cluster"
	// IOPSPerGB and KeepRatio record that IOPS grow with the volume.
	IOPSPerGB = reservedPrefix + "IOPSPerGb"
	KeepRatio = reservedPrefix + "AllowAutoIOPSIncreaseOnModify"
	// Request is the fingerprint of the request that made a volume. It distinguishes a
	// repeat from another request with the same name. The AWS EBS CSI driver neither
	// writes nor reads it.
	Request = reservedPrefix + "request"
	// Context is the volume context, as pairs key=value separated by commas.
	Context = reservedPrefix + "volume-context"

	// PVName is on volumes of claims, also on those of the in-tree plugin of Kubernetes.
	PVName = createdForPrefix + "pv/name"

	clusterName       = reservedPrefix + "cluster-name"
	reservedPrefix    = "ebs.csi.aws.com/"
	kubernetesPrefix  = "kubernetes.io"
	awsPrefix         = "aws:"
	clusterPrefix     = "kubernetes.io/cluster/"
	createdForPrefix  = "kubernetes.io/created-for/"
	kubernetesCluster = "KubernetesCluster"
	nameKey           = "Name"
	metadataPrefix    = "csi.storage.k8s.io/"
)

// EC2's limits for tags, in Unicode characters (EC2 user guide, "Tag your Amazon EC2
// resources").
const (
	maxTags  = 50
	maxKey   = 128
	maxValue = 256
)

// checkKey rejects keys that EC2 rejects, and the driver's own keys.
func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", backend.ErrInvalid)
	case !utf8.ValidString(key) || utf8.RuneCountInString(key) > maxKey:
		return fmt.Errorf("%w: the key %.40q is not of 1 to %d characters of UTF-8", backend.ErrInvalid, key, maxKey)
	case key == VolumeName || key == SnapshotName || strings.HasPrefix(key, kubernetesPrefix) || strings.HasPrefix(key,
		reservedPrefix):
		return fmt.Errorf("%w: the key %q is the driver's own; choose another", backend.ErrInvalid, key)
	case len(key) >= len(awsPrefix) && strings.EqualFold(key[:len(awsPrefix)], awsPrefix):
		return fmt.Errorf("%w: the key %q begins with %q, which is AWS's; choose another",
			backend.ErrInvalid, key, awsPrefix)
	}
	return nil
}

func checkValue(key, value string) error {
	if !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxValue {
		return fmt.Errorf("%w: the value of %q is not of at most %d characters of UTF-8: %.80q",
			backend.ErrInvalid, key, maxValue, value)
	}
	return nil
}

// checkAll checks a complete set of tags: their number, and every value.
func checkAll(tags map[string]string) error {
	if len(tags) > maxTags {
		return fmt.Errorf("%w: %d tags are more than the %d of EC2; request fewer",
			backend.ErrInvalid, len(tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if err := checkValue(key, tags[key]); err != nil {
			return fmt.Errorf("tag: %w", err)
		}
	}
	return nil
}

// CheckRemoval rejects the removal of tags that are not the user's (ErrInvalid).
func CheckRemoval(keys []string) error {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return fmt.Errorf("tagDeletion: %w", err)
		}
	}
	return nil
}
