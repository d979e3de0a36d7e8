package groupsnapshot

import (
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// spread are a content and its volumes, on two nodes.
func spread() []runtime.Object {
	return []runtime.Object{contenttest.Volume("vol-1", "n1"), contenttest.Volume("vol-2", "n2"), suite().Make("a")}
}

func TestNode_ofTheFirstVolumeRejectsAGroupOfSeveralNodes(t *testing.T) {
	s := suite()
	f := s.StartOn(t, "n1", nil, spread()...)
	if o := f.Becomes("a", "refused", f.Fails("different nodes")); s.IsMarked(o) {
		t.Error("marked, though no driver is called")
	}
	f.Happens("Warning GroupSnapshotCreationFailed a", "select volumes of one node")
	f.DeleteByUser("a")
	f.Vanishes("a")
	if calls := f.Driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
	s.StartOn(t, "n2", nil, spread()...).Untouched("a")
}

func TestNode_retriesToReportTheRejection(t *testing.T) {
	s := suite()
	var failed atomic.Int32
	f := s.StartAfter(t, func(f *contenttest.Fixture[object]) {
		f.Env.Scope = cluster.Scope{Node: "n1", Segments: map[string]string{"node": "n1"}}
		f.React("patch", "volumegroupsnapshotcontents", func(apiserver.Request) error {
			if failed.Add(1) <= 2 {
				return s.Refused(http.StatusForbidden)
			}
			return nil
		})
	}, nil, spread()...)
	f.Becomes("a", "refused", f.Fails("different nodes"))
}
