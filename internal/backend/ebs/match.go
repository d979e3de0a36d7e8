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

// Matches reports whether a volume is what a creation asks for. One that carries
// the fingerprint of the very request is, whatever was changed since; one that
// carries none, as those of the AWS EBS CSI driver, is judged by what it is.
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
		return differs("zone " + have.Zone + ", which is none of the requisite ones")
	}
	asked, fingerprinted := have.Tags[tags.Request]
	if fingerprinted && asked == fingerprint(spec) {
		return nil
	}
	different, err := difference(have, spec)
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

// difference names the first attribute in which a volume is not what is asked
// for; "" when there is none. What the request leaves open does not count.
func difference(have cloud.Volume, spec backend.VolumeSpec) (string, error) {
	desired, shape, err := read(spec)
	if err != nil {
		return "", err
	}
	want, has := shape.WithDefaults(), shapeOf(have)
	say := func(what string, have, want any) (string, error) {
		return fmt.Sprintf("%s %v, the request has %v", what, have, want), nil
	}
	switch {
	case has.Type != want.Type:
		return say("type", has.Type, want.Type)
	case has.IOPS != want.IOPS:
		return say("iops", has.IOPS, want.IOPS)
	case has.Throughput != want.Throughput:
		return say("throughput", has.Throughput, want.Throughput)
	case has.MultiAttach != want.MultiAttach:
		return say("access from several nodes", has.MultiAttach, want.MultiAttach)
	case !have.Encrypted && encrypts(desired):
		return say("encrypted", false, true)
	case otherKey(have.KMSKeyID, desired.KMSKeyID):
		return say("kmsKeyId", have.KMSKeyID, desired.KMSKeyID)
	}
	return "", nil
}

// shapeOf is what can be chosen of a volume, as it is.
func shapeOf(v cloud.Volume) volumetype.Spec {
	return volumetype.Spec{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput, MultiAttach: v.MultiAttach}.Chosen()
}

func encrypts(desired params.Volume) bool {
	return desired.KMSKeyID != "" || (desired.Encrypted != nil && *desired.Encrypted)
}

// otherKey reports whether a volume's key, which EC2 gives as an ARN, is certainly
// not the one asked for: an alias could be any.
func otherKey(have, want string) bool {
	return strings.Contains(want, ":key/") && have != want
}
