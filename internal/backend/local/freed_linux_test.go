package local

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestCreateVolume_findsTheRoomOfASnapshotThatWasJustDeleted(t *testing.T) {
	for _, fsType := range []string{"xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			pool := open(t, Options{Pool: small(t, fsType, 1<<30)})
			// Fits next to the source only when the snapshot shares nothing any more.
			size := int64(440 << 20)
			if fsType == "btrfs" { // which needs more for itself
				size = 300 << 20
			}
			volume := create(t, pool, backend.VolumeSpec{Name: "source", Size: size})
			writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte("data"), int(size/8)))
			for round := range 5 {
				snapshot, err := pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: fmt.Sprint("snapshot ", round), SourceID: volume.ID})
				must(t, err)
				must(t, pool.DeleteSnapshot(t.Context(), snapshot.ID))
				clone := create(t, pool, backend.VolumeSpec{Name: "clone", Size: size, Source: backend.Source{VolumeID: volume.ID}})
				must(t, pool.DeleteVolume(t.Context(), clone.ID))
			}
		})
	}
}
