package ebs

import (
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// NormalizeParameters changes every key to its one spelling. Two spellings of one key are
// ErrInvalid.
func (c *Controller) NormalizeParameters(
	parameters, mutable map[string]string,
) (map[string]string, map[string]string, error) {
	return params.Normalize(parameters, mutable, c.options.Reading)
}

// CheckParameters rejects values that are invalid for a volume of any size, new or
// existing.
func (c *Controller) CheckParameters(parameters, mutable map[string]string) error {
	desired, err := params.ParseVolume(parameters, mutable, c.options.Reading)
	if err != nil {
		return err
	}
	if err := c.tags.CheckVolume(desired.Tags); err != nil {
		return err
	}
	return tags.CheckRemoval(desired.Untag)
}

// Sizes are those of the type that the parameters name.
func (c *Controller) Sizes(parameters, mutable map[string]string) (minimum, maximum int64, err error) {
	desired, err := params.ParseVolume(parameters, mutable, c.options.Reading)
	if err != nil {
		return 0, 0, err
	}
	sizes, err := desired.Sizes()
	return int64(sizes.Least) * gib, int64(sizes.Most) * gib, err
}
