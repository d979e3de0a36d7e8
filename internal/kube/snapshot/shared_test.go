package snapshot

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// TestCreate_twoContentsNeverHaveOneSnapshot: the names of two snapshots of a volume are
// equal, so that the driver answers the second call with the first snapshot.
func TestCreate_twoContentsNeverHaveOneSnapshot(t *testing.T) {
	of := func(o *snapshotv1.VolumeSnapshotContent) { *o.Spec.Source.VolumeHandle = "vol" }
	f := prepare(t, nil)
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll(), Naming: claim.Naming{UIDLength: 3}}))
	f.Add(dynamic("a", of))
	f.becomes("a", "ready", readyAndUnmarked)
	f.Add(dynamic("b", of))
	f.becomes("b", "rejected", fails(`which is the snapshot of content "a"`))
	first := f.get("a")
	userGone(first)
	f.Put(first)
	f.Delete(dynamic("a"))
	f.vanishes("a")
	f.becomes("b", "ready", readyAndUnmarked)
}
