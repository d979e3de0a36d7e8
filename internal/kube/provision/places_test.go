package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// many is the requirement of a cluster of 5,000 nodes, beginning with one of them. Their
// names are as long as a label's value, and hardly to be compressed.
func many(first int) *csi.TopologyRequirement {
	var terms []claim.Term
	for i := range 5000 {
		name := sha256.Sum256(fmt.Append(nil, i))
		terms = append(terms, claim.NewTerm(map[string]string{
			"topology.d.example/node": hex.EncodeToString(name[:])[:63], "topology.kubernetes.io/zone": fmt.Sprint("zone-", i%3),
		}))
	}
	places := claim.NewTerms(claim.SortTerms(terms))
	return &csi.TopologyRequirement{Requisite: places.From(0), Preferred: places.From(first)}
}

// firstPreferred is the answer of a driver that creates volumes where they are preferred.
func firstPreferred(request *csi.CreateVolumeRequest, volume *csi.Volume) {
	volume.AccessibleTopology = request.GetAccessibilityRequirements().GetPreferred()[:1]
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
	w.Driver.Creation.Answer = firstPreferred
	death, bury := w.mortal("create/called", func(env *cluster.Env, o *Options) {
		env.Retry.Start, env.Retry.Max = time.Hour, time.Hour
		o.Topology = fixed{many(1234)}
	})
	w.Add(newClaim("a"))
	death.Await()
	bury()
	w.run(func(_ *cluster.Env, o *Options) { o.Topology = fixed{many(7)} })
	w.saved("pvc-uid-a")
	calls := w.calls()
	if len(calls) != 2 || !proto.Equal(calls[0].GetAccessibilityRequirements(), many(1234)) || !proto.Equal(calls[0], calls[1]) {
		t.Errorf("%d calls, and the repeated one is the same: %t", len(calls), len(calls) == 2 && proto.Equal(calls[0], calls[1]))
	}
}

// TestIntent_sharesThePlaces: the topologies of the cluster are written once for many
// claims, and removed when no intent needs them.
func TestIntent_sharesThePlaces(t *testing.T) {
	w := newWorld(t, newClass())
	w.withTopology()
	w.Driver.Creation.Answer = firstPreferred
	w.run(func(_ *cluster.Env, o *Options) { o.Topology, o.ForgetAfter = fixed{many(1234)}, time.Second })
	w.claims(0, 20)
	large := 0
	for _, write := range w.Writes() {
		if write.Resource == "configmaps" && len(write.Body) > 64<<10 {
			large++
		}
	}
	if large != 1 {
		t.Errorf("the topologies are written %d times", large)
	}
	w.Eventually(func() error {
		list, err := w.Core.CoreV1().ConfigMaps(apiserver.Intents).List(w.Context(), metav1.ListOptions{})
		for _, object := range list.Items {
			if len(object.Data)+len(object.BinaryData) > 0 {
				return fmt.Errorf("ConfigMap %s remains", object.Name)
			}
		}
		return err
	})
}
