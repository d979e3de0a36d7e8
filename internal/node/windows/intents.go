package windows

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// intents are written by Stage before its first effect, for a process that unstages the
// volume after a crash of this one. The staging directory alone is not enough: several
// volumes may have its path, and Windows does not list the folders of a volume.
//
// An intent is a directory of the machine, since csi-proxy writes no files:
//
//	DIR\VOLUME\paths\PATH
//
// with digests of the volume's ID and of the staging path. While DIR\VOLUME exists,
// the volume's disk may be online.
type intents struct {
	filesystem api.Filesystem
	dir        string
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func (i intents) volume(volumeID string) string { return i.dir + `\` + digest(volumeID) }

func (i intents) paths(volumeID string) string { return i.volume(volumeID) + `\paths` }

func (i intents) path(volumeID, staging string) string {
	return i.paths(volumeID) + `\` + digest(foldPath(staging))
}

// write makes the intent to stage a volume at a path durable. An existing one is not an
// error.
func (i intents) write(ctx context.Context, volumeID, staging string) error {
	if err := i.filesystem.Mkdir(ctx, i.path(volumeID, staging)); err != nil {
		return fmt.Errorf("write the intent to stage the volume: %w", err)
	}
	return nil
}

// exists reports whether a Stage of the volume began, at any path, and no Unstage has
// undone it completely.
func (i intents) exists(ctx context.Context, volumeID string) (bool, error) {
	exists, err := i.filesystem.PathExists(ctx, i.volume(volumeID))
	if err != nil {
		return false, fmt.Errorf("read the intents to stage the volume: %w", err)
	}
	return exists, nil
}

// withdraw removes the intent for one path and reports whether the volume has
// none for another path. The volume's directory stays until forget, so that a repeated
// call knows that the disk may still be online.
func (i intents) withdraw(ctx context.Context, volumeID, staging string) (last bool, err error) {
	err = absent(i.filesystem.Rmdir(ctx, i.path(volumeID, staging), false))
	if err == nil {
		err = absent(i.filesystem.Rmdir(ctx, i.paths(volumeID), false))
		if errors.Is(err, backend.ErrPrecondition) { // it has directories of other paths
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("withdraw the intent to stage the volume: %w", err)
	}
	return true, nil
}

// forget removes the directory of the volume's intents, once its disk is offline.
func (i intents) forget(ctx context.Context, volumeID string) error {
	if err := absent(i.filesystem.Rmdir(ctx, i.volume(volumeID), false)); err != nil {
		return fmt.Errorf("remove the intents to stage the volume: %w", err)
	}
	return nil
}
