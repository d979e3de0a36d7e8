package snapshot

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// startOn runs the controller of one node on its own.
func startOn(t *testing.T, node string, driver *csidriver.Driver, objects ...runtime.Object) fixture {
	t.Helper()
	f := prepare(t, driver, objects...)
	f.node(node)
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	return f
}

func (f fixture) untouched(name string) {
	f.t.Helper()
	before := f.get(name).ResourceVersion
	time.Sleep(60 * time.Millisecond)
	if o := f.get(name); o.ResourceVersion != before || len(f.driver.Calls()) > 0 {
		f.t.Errorf("%s was touched: %+v, calls %q", name, o.ObjectMeta, f.driver.Calls())
	}
}

func TestNode_createsTheSnapshotsOfItsVolumesAndLabelsThem(t *testing.T) {
	f := startOn(t, "n1", nil, volume("vol-a", "n1"), dynamic("a"))
	if o := f.becomes("a", "ready", readyAndUnmarked); o.Labels[claim.ManagedByLabel] != "n1" {
		t.Errorf("labels: %v", o.Labels)
	}
	// The volume may go before its snapshot: the label then shows whose that is.
	f.Delete(volume("vol-a", "n1"))
	f.deleteByUser("a")
	f.vanishes("a")
	if left := f.driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

func TestNode_ignoresTheSnapshotsOfOtherNodes(t *testing.T) {
	startOn(t, "n1", nil, volume("vol-a", "n2"), dynamic("a")).untouched("a")
	startOn(t, "n1", nil, volume("vol-a", "n1"), dynamic("a", labelledFor("n2"))).untouched("a")
	startOn(t, "n1", nil, volume("vol-a", "n2"), dynamic("a", markedYes, deleted, userGone)).untouched("a")
}

func TestNode_servesContentsWithItsLabel(t *testing.T) {
	f := startOn(t, "n1", nil, dynamic("a", labelledFor("n1")))
	f.becomes("a", "ready", readyAndUnmarked)
}

func TestNode_waitsForAnUnknownVolume(t *testing.T) {
	f := startOn(t, "n1", nil, dynamic("a"))
	f.untouched("a")
	f.Add(volume("vol-a", "n1"))
	f.becomes("a", "ready", readyAndUnmarked)
}

func TestNode_adoptsASnapshotThatItsDriverHas(t *testing.T) {
	driver := csidriver.New(driverName)
	id := driver.AddSnapshot("old", "vol")
	f := startOn(t, "n1", driver, staticFor("mine", id), staticFor("other", "id-elsewhere"))
	if o := f.becomes("mine", "ready", ready); o.Labels[claim.ManagedByLabel] != "n1" {
		t.Errorf("labels: %v", o.Labels)
	}
	if o := f.get("other"); o.Status != nil || o.Labels != nil {
		t.Errorf("what another node may have was touched: %+v", o)
	}
}

// A retained volume's PersistentVolume may be gone when its snapshot is deleted.
func TestNode_deletesAnUnlabelledSnapshotThatItsDriverHas(t *testing.T) {
	driver := csidriver.New(driverName)
	id := driver.AddSnapshot("old", "vol-a")
	f := startOn(t, "n1", driver, dynamic("a", takenAs(id, true), deleted, userGone))
	f.vanishes("a")
	if left := driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

// Drivers that work on each node alone may give the same ID on two nodes.
func TestNode_deletesASnapshotWhoseIDAnotherNodeHasToo(t *testing.T) {
	driver := csidriver.New(driverName)
	id := driver.AddSnapshot("old", "vol-a")
	f := startOn(t, "n1", driver, dynamic("a", takenAs(id, true), labelledFor("n1"), deleted, userGone), dynamic("b", takenAs(id, true), labelledFor("n2")))
	f.vanishes("a")
	if left := driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

func TestNode_removesTheFinalizerOfAnOrphan(t *testing.T) {
	gone := metav1.NewTime(time.Now().Add(-2 * time.Minute))
	f := startOn(t, "n1", nil, dynamic("just"),
		dynamic("long", userGone, func(o *snapshotv1.VolumeSnapshotContent) { o.DeletionTimestamp = &gone }))
	f.vanishes("long")
	f.deleteByUser("just")
	f.Never(50*time.Millisecond, func() error {
		f.get("just") // another node may have it in its caches
		return nil
	})
}
