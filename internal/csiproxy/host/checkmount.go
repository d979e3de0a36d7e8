package host

import (
	"context"
	"fmt"
)

// CheckMount gives the error with which Mount would refuse a directory as it is
// now, and changes nothing. With it a caller who formats and then mounts need not
// format in vain.
func (v volumes) CheckMount(ctx context.Context, volumeID, path string) error {
	at, err := v.rules.Target("target path", path)
	if err != nil {
		return err
	}
	target, err := v.mountTarget(ctx, at)
	if err != nil {
		return fmt.Errorf("look at %s: %w", at, err)
	}
	defer target.close()
	if same(target.volume, volumeID) {
		return nil
	}
	if err := target.ready(); err != nil {
		return fmt.Errorf("look at %s: %w", at, err)
	}
	return nil
}
