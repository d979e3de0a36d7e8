package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Remains counts the volumes and snapshots in a pool that is not open, as far as
// it can be seen: a pool in an image that is not mounted shows none.
func Remains(pool string) (count int, err error) {
	for _, directory := range []string{volumesDir, snapshotsDir} {
		entries, err := os.ReadDir(filepath.Join(pool, directory))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		count += len(entries)
	}
	return count, nil
}
