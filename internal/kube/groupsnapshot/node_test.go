package groupsnapshot

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func (f fixture) untouched(name string) {
	f.t.Helper()
	before := f.get(name).ResourceVersion
	time.Sleep(60 * time.Millisecond)
	if o := f.get(name); o.ResourceVersion != before || len(f.driver.Calls()) > 0 {
		f.t.Errorf("%s was touched: %+v, calls %q", name, o.ObjectMeta, f.driver.Calls())
	}
}

func TestNode_createsTheGroupsOfItsVolumesAndLabelsThem(t *testing.T) {
	f := startOn(t, "n1", nil, volume("vol-1", "n1"), volume("vol-2", "n1"), group("a"))
	object := f.becomes("a", "ready", readyAndUnmarked)
	if object.Labels[claim.ManagedByLabel] != "n1" {
		t.Errorf("labels: %v", object.Labels)
	}
	// The volumes may go before the snapshots: the label then shows whose they are.
	f.Delete(volume("vol-1", "n1"))
	f.Delete(volume("vol-2", "n1"))
	f.deleteByUser("a")
	f.vanishes("a")
	f.empty()
}

func TestNode_ignoresTheGroupsOfOtherNodes(t *testing.T) {
	t.Run("by the volumes", func(t *testing.T) {
		startOn(t, "n1", nil, volume("vol-1", "n2"), volume("vol-2", "n2"), group("a")).untouched("a")
	})
	t.Run("by the label", func(t *testing.T) {
		startOn(t, "n1", nil, volume("vol-1", "n1"), volume("vol-2", "n1"), group("a", labelledFor("n2"))).untouched("a")
	})
}

func TestNode_waitsForUnknownVolumes(t *testing.T) {
	f := startOn(t, "n1", nil, volume("vol-1", "n1"), group("a"))
	f.untouched("a")
	f.Add(volume("vol-2", "n1"))
	f.becomes("a", "ready", readyAndUnmarked)
}

func TestNode_ofTheFirstVolumeRejectsAGroupOfSeveralNodes(t *testing.T) {
	f := startOn(t, "n1", nil, volume("vol-1", "n1"), volume("vol-2", "n2"), group("a"))
	if o := f.becomes("a", "refused", fails("different nodes")); marked(o) {
		t.Error("marked, though no driver is called")
	}
	f.happens("Warning GroupSnapshotCreationFailed a", "select volumes of one node")
	f.deleteByUser("a")
	f.vanishes("a")
	if calls := f.driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
	other := startOn(t, "n2", nil, volume("vol-1", "n1"), volume("vol-2", "n2"), group("a"))
	other.untouched("a")
}

func TestNode_retriesToReportTheRejection(t *testing.T) {
	f := prepare(t, nil, volume("vol-1", "n1"), volume("vol-2", "n2"), group("a"))
	var failed atomic.Int32
	f.React("patch", "volumegroupsnapshotcontents", func(apiserver.Request) error {
		if failed.Add(1) <= 2 {
			return apierrors.NewGenericServerResponse(http.StatusForbidden, "patch", groupResource(), "a", "for a test", 0, false)
		}
		return nil
	})
	f.onNode("n1")
	f.becomes("a", "refused", fails("different nodes"))
}

func TestNode_adoptsAGroupThatItsDriverHas(t *testing.T) {
	driver := csidriver.New(driverName)
	id, members := driver.AddGroup("old", "vol-1")
	f := startOn(t, "n1", driver, group("mine", existing(id, members...)), group("other", existing("id-elsewhere", "m")))
	object := f.becomes("mine", "ready", ready)
	if object.Labels[claim.ManagedByLabel] != "n1" {
		t.Errorf("labels: %v", object.Labels)
	}
	if o := f.get("other"); o.Status != nil || o.Labels != nil {
		t.Errorf("what another node may have was touched: %+v", o)
	}
}

func TestNode_removesTheFinalizerOfAnOrphan(t *testing.T) {
	gone := metav1.NewTime(time.Now().Add(-2 * time.Minute))
	just := group("just", of("vol-lost"))
	f := startOn(t, "n1", nil, just, group("long", of("vol-lost"), userGone, func(o *groupv1.VolumeGroupSnapshotContent) { o.DeletionTimestamp = &gone }))
	f.vanishes("long")
	f.deleteByUser("just")
	f.stays("just") // another node may have it in its caches
}
