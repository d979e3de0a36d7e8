package ebs

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// Validate reports whether a volume can be used as a CO believes, and is what the
// believed parameters say. A volume may have been modified since, so attributes
// that the parameters leave open are not compared.
func (c *Controller) Validate(volume backend.Volume, belief backend.VolumeSpec) error {
	have, ok := volume.Detail.(cloud.Volume)
	if !ok {
		return fmt.Errorf("volume %s was not described by this backend", volume.ID)
	}
	shared, err := sharing(belief.Capabilities)
	if err != nil {
		return err
	}
	if shared && !have.MultiAttach {
		return fmt.Errorf("%w: volume %s is not enabled for Multi-Attach, so one node at a time can have it", backend.ErrInvalid, have.ID)
	}
	if len(belief.Parameters)+len(belief.MutableParameters) == 0 || have.Tags[tags.Request] == fingerprint(belief) {
		return nil
	}
	return named(have, belief)
}

// named compares the attributes that the parameters name.
func named(have cloud.Volume, belief backend.VolumeSpec) error {
	wish, _, err := read(belief)
	if err != nil {
		return err
	}
	differs := func(key string, is, want any) error {
		return fmt.Errorf("%w: %s of volume %s is %v, not %v", backend.ErrInvalid, key, have.ID, is, want)
	}
	switch {
	case wish.Type != "" && wish.Type != have.Type:
		return differs("type", have.Type, wish.Type)
	case wish.IOPS != 0 && wish.IOPS != have.IOPS:
		return differs("iops", have.IOPS, wish.IOPS)
	case wish.Throughput != 0 && wish.Throughput != have.Throughput:
		return differs("throughput", have.Throughput, wish.Throughput)
	case encrypts(wish) && !have.Encrypted:
		return differs("encrypted", false, true)
	case otherKey(have.KMSKeyID, wish.KMSKeyID):
		return differs("kmsKeyId", have.KMSKeyID, wish.KMSKeyID)
	}
	return nil
}
