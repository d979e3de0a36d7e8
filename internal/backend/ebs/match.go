package ebs

import (
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// Matches returns ErrExists if a volume does not match a creation request. A volume with
// the fingerprint of the request matches, even if it was modified since. One without a
// fingerprint, as those of the AWS EBS CSI driver, is compared by its attributes.
func (c *Controller) Matches(volume backend.Volume, spec backend.VolumeSpec) error {
	have, ok := volume.Detail.(cloud.Volume)
	if !ok {
		return fmt.Errorf("volume %s was not described by this backend", volume.ID)
	}
	differs := func(what string) error {
		return fmt.Errorf("%w: volume %s has that name with %s; use another name", backend.ErrExists, have.ID, what)
	}
	if ok, err := reachable(locationOfVolume(have), spec.Topology); err != nil || !ok {
		if err != nil {
			return err
		}
		return differs("zone " + have.Zone + ", which is not one of the requisite zones")
	}
	asked, fingerprinted := have.Tags[tags.Request]
	if fingerprinted && asked == fingerprint(spec) {
		return nil
	}
	different, err := c.difference(have, spec)
	switch {
	case err != nil:
		return err
	case different != "":
		return differs(different)
	case fingerprinted:
		return differs("other parameters")
	}
	return nil
}

// difference names the first attribute in which a volume does not match a request; "" if
// there is none. Attributes that the request does not set are not compared.
func (c *Controller) difference(have cloud.Volume, spec backend.VolumeSpec) (string, error) {
	desired, shape, err := c.read(spec)
	if err != nil {
		return "", err
	}
	want, has := shape.WithDefaults(), shapeOf(have)
	if int64(has.IOPS) == desired.AskedIOPS(shape.Size) {
		want.IOPS = has.IOPS // not lowered, because EC2 made it with these
	}
	differs := func(what string, have, want any) (string, error) {
		return fmt.Sprintf("%s %v, the request has %v", what, have, want), nil
	}
	switch {
	case has.Type != want.Type:
		return differs("type", has.Type, want.Type)
	case has.IOPS != want.IOPS:
		return differs("iops", has.IOPS, want.IOPS)
	case has.Throughput != want.Throughput:
		return differs("throughput", has.Throughput, want.Throughput)
	case has.MultiAttach != want.MultiAttach:
		return differs("access from several nodes", has.MultiAttach, want.MultiAttach)
	case !have.Encrypted && encrypts(desired):
		return differs("encrypted", false, true)
	case otherKey(have.KMSKeyID, desired.KMSKeyID):
		return differs("kmsKeyId", have.KMSKeyID, desired.KMSKeyID)
	}
	return "", nil
}

// shapeOf has the attributes of a volume that a request can choose.
func shapeOf(v cloud.Volume) volumetype.Spec {
	return volumetype.Spec{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput,
		MultiAttach: v.MultiAttach}.Chosen()
}

func encrypts(desired params.Volume) bool {
	return desired.KMSKeyID != "" || (desired.Encrypted != nil && *desired.Encrypted)
}

// otherKey reports whether a volume's key, for which EC2 returns the ARN, is certainly
// not the requested one. A requested alias cannot be compared.
func otherKey(have, want string) bool {
	return strings.Contains(want, ":key/") && have != want
}
