package provision

import (
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// many is the requirement of a cluster of 2,000 nodes, beginning with one of them.
func many(first int) *csi.TopologyRequirement {
	var terms []claim.Term
	for i := range 2000 {
		terms = append(terms, claim.NewTerm(map[string]string{"topology.d.example/node": fmt.Sprintf("ip-10-%d-%d-7.eu-central-1.compute.internal", i%256, i*7919%256+i/256*256)}))
	}
	places := claim.NewTerms(claim.SortTerms(terms))
	return &csi.TopologyRequirement{Requisite: places.From(0), Preferred: places.From(first)}
}

// fixed is a Topology that always requires the same.
type fixed struct{ requirement *csi.TopologyRequirement }

func (f fixed) Requirement(*corev1.PersistentVolumeClaim, *storagev1.StorageClass, string) (*csi.TopologyRequirement, error) {
	return f.requirement, nil
}

// TestIntent_holdsAllPlacesOfALargeCluster, and the same ones when the call is
// repeated, whatever has become of the cluster.
func TestIntent_holdsAllPlacesOfALargeCluster(t *testing.T) {
	w := newWorld(t, newClass())
	w.withTopology()
	w.Driver.Creation.Answer = func(request *csi.CreateVolumeRequest, volume *csi.Volume) {
		volume.AccessibleTopology = request.GetAccessibilityRequirements().GetPreferred()[:1]
	}
	death, bury := w.mortal("create/called", func(env *cluster.Env, o *Options) {
		env.Retry.Start, env.Retry.Max = time.Hour, time.Hour
		o.Topology = fixed{many(1234)}
	})
	w.Add(newClaim("a"))
	select {
	case <-death.seen:
	case <-time.After(time.Minute):
		t.Fatalf("no volume was made; events: %q", w.Events())
	}
	bury()
	w.run(func(_ *cluster.Env, o *Options) { o.Topology = fixed{many(7)} })
	w.saved("pvc-uid-a")
	calls := w.calls()
	if len(calls) != 2 || !proto.Equal(calls[0].GetAccessibilityRequirements(), many(1234)) || !proto.Equal(calls[0], calls[1]) {
		t.Errorf("%d calls, and the repeated one is the same: %t", len(calls), len(calls) == 2 && proto.Equal(calls[0], calls[1]))
	}
}
