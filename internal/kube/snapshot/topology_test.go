package snapshot

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const onN1 = `[{"matchLabelExpressions":[{"key":"node","values":["n1"]}]}]`

// local is a driver whose snapshots can be restored on their node only.
func local() *csidriver.Driver {
	driver := csidriver.New(contenttest.Driver)
	driver.Plugin = append(driver.Plugin, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS)
	driver.Snapshots.Topology = []*csi.Topology{{Segments: map[string]string{"node": "n1"}}}
	return driver
}

// TestTopology_isRecordedBeforeTheSnapshot: otherwise a crash between the two writes
// would lose the topology, since a recorded snapshot is not asked for again.
func TestTopology_isRecordedBeforeTheSnapshot(t *testing.T) {
	s, driver := suite(), local()
	var refused atomic.Int32
	f := s.StartAfter(t, func(f *contenttest.Fixture[object]) {
		f.React("patch", "volumesnapshotcontents", func(q apiserver.Request) error {
			if q.Subresource != "status" || !strings.Contains(string(q.Body), "snapshotHandle") {
				return nil
			}
			if got := f.Get("a").Annotations[claim.NodeAffinityAnnotation]; got != onN1 {
				t.Errorf("the snapshot is recorded with the topology %q", got)
			}
			if refused.Add(1) == 1 {
				return apierrors.NewInternalError(errors.New("for a test"))
			}
			return nil
		})
	}, driver, s.Make("a"))
	if got := f.Done("a").Annotations[claim.NodeAffinityAnnotation]; got != onN1 {
		t.Errorf("recorded %q", got)
	}
}

func TestTopology_ofASnapshotThatAnAdministratorNames(t *testing.T) {
	s, driver := suite(), local()
	f := s.Start(t, driver, s.Static("a", s.Add(driver, "old"), s.Retain))
	if got := f.Done("a").Annotations[claim.NodeAffinityAnnotation]; got != onN1 {
		t.Errorf("recorded %q", got)
	}
}

// TestTopology_staysAsRecorded, as the KEP's field does, which is immutable.
func TestTopology_staysAsRecorded(t *testing.T) {
	const byHand = `[{"matchLabelExpressions":[{"key":"zone","values":["a"]}]}]`
	s, driver := suite(), local()
	f := s.Start(t, driver, s.Static("a", s.Add(driver, "old"), s.Retain, s.Annotated(claim.NodeAffinityAnnotation, byHand)))
	if got := f.Done("a").Annotations[claim.NodeAffinityAnnotation]; got != byHand {
		t.Errorf("changed to %q", got)
	}
}
