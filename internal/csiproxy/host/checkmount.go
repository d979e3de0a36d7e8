package host

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

// CheckMount returns the error with which Mount would reject a directory as it is
// now, and changes nothing. A caller that formats and then mounts checks the directory
// before it formats.
func (v volumes) CheckMount(ctx context.Context, volumeID, path string) error {
	at, err := v.rules.Target("target path", path)
	if err != nil {
		return err
	}
	_, err = ask(ctx, v.tasks, pathKey(at), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, v.checkMount(ctx, volumeID, at)
	})
	if err != nil {
		return fmt.Errorf("inspect %s: %w", at, err)
	}
	return nil
}

func (v volumes) checkMount(ctx context.Context, volumeID string, at paths.Path) error {
	target, err := v.mountTarget(ctx, at)
	if err != nil {
		return err
	}
	defer target.close()
	if same(target.volume, volumeID) {
		return nil
	}
	return target.ready()
}
