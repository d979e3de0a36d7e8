package ebs

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// Validate returns ErrInvalid if a volume does not have the capabilities and parameters
// that a CO believes. A volume may have been modified since its creation, so attributes
// that the parameters do not set are not compared.
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
		return fmt.Errorf("%w: volume %s is not enabled for Multi-Attach; only one node at a time can attach it",
			backend.ErrInvalid, have.ID)
	}
	if len(belief.Parameters)+len(belief.MutableParameters) == 0 || have.Tags[tags.Request] == fingerprint(belief) {
		return nil
	}
	return c.named(have, belief)
}

// named compares the attributes that the parameters name.
func (c *Controller) named(have cloud.Volume, belief backend.VolumeSpec) error {
	desired, shape, err := c.read(belief)
	if err != nil {
		return err
	}
	differs := func(key string, is, want any) error {
		return fmt.Errorf("%w: %s of volume %s is %v, not %v", backend.ErrInvalid, key, have.ID, is, want)
	}
	switch {
	case desired.Type != "" && desired.Type != have.Type:
		return differs("type", have.Type, desired.Type)
	case desired.IOPS != 0 && desired.IOPS != have.IOPS && shape.IOPS != have.IOPS:
		return differs("iops", have.IOPS, shape.IOPS)
	case desired.Throughput != 0 && desired.Throughput != have.Throughput:
		return differs("throughput", have.Throughput, desired.Throughput)
	case encrypts(desired) && !have.Encrypted:
		return differs("encrypted", false, true)
	case otherKey(have.KMSKeyID, desired.KMSKeyID):
		return differs("kmsKeyId", have.KMSKeyID, desired.KMSKeyID)
	}
	return nil
}
