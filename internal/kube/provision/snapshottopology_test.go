package provision

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// twoNodes is a Topology of the nodes n1 and n2, which begins with the selected one.
type twoNodes struct{ strict bool }

func (n twoNodes) Requirement(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, node string) (*csi.TopologyRequirement, error) {
	first, second := in("node", "n1"), in("node", "n2")
	if node == "n2" {
		first, second = second, first
	}
	if n.strict {
		return &csi.TopologyRequirement{Requisite: first, Preferred: first}, nil
	}
	both := append(first, second...)
	return &csi.TopologyRequirement{Requisite: both, Preferred: both}, nil
}

func withTopology(topology Topology) func(*cluster.Env, *Options) {
	return func(_ *cluster.Env, o *Options) { o.Topology, o.Snapshots = topology, true }
}

// snapshotOn has a class and a snapshot that can be restored on a node only, and neither
// a label nor the volume that it is of.
func snapshotOn(t *testing.T, node string, late bool) *world {
	class := newClass()
	if late {
		class = newClass(waitForConsumer)
	}
	w := nodesWorld(t, class, "n1", "n2")
	w.Driver.Creation.Strict = false
	snapshot, content := newSnapshot("s")
	text, err := claim.SnapshotAffinity(in("node", node))
	if err != nil {
		t.Fatal(err)
	}
	content.Annotations = map[string]string{claim.NodeAffinityAnnotation: text}
	handle := "id-of-a-deleted-volume"
	content.Spec.Source.VolumeHandle = &handle
	w.Add(snapshot, content)
	return w
}

func TestSnapshotTopology_restrictsTheVolume(t *testing.T) {
	for name, node := range map[string]string{"late binding": "n2", "immediate binding": ""} {
		t.Run(name, func(t *testing.T) {
			w := snapshotOn(t, "n1", node != "")
			w.run(withTopology(twoNodes{}))
			pvc := newClaim("a", restoreOf("s"))
			if node != "" {
				pvc = newClaim("a", restoreOf("s"), onNode(node))
			}
			w.Add(pvc)
			w.saved("pvc-uid-a")
			requirement := w.calls()[0].GetAccessibilityRequirements()
			for _, list := range [][]*csi.Topology{requirement.GetRequisite(), requirement.GetPreferred()} {
				if len(list) != 1 || list[0].GetSegments()["node"] != "n1" {
					t.Errorf("the volume is requested in %v", requirement)
				}
			}
			if now := selectedNode(w.claimNow("a")); now != node {
				t.Errorf("the claim was moved from node %q to %q", node, now)
			}
		})
	}
}

func TestSnapshotTopology_strictlyAnotherNodeIsSelected(t *testing.T) {
	w := snapshotOn(t, "n1", true)
	w.run(withTopology(twoNodes{strict: true}))
	w.Add(newClaim("a", restoreOf("s"), onNode("n2")))
	w.event("Warning ProvisioningFailed ns/a", `it can be restored in [node=n1] only`)
	w.chosen("a", "")
	if len(w.calls()) > 0 {
		t.Errorf("the driver was asked: %v", w.calls())
	}
}

func TestSnapshotTopology_thatTheClassExcludes(t *testing.T) {
	w := snapshotOn(t, "n3", false)
	w.run(withTopology(twoNodes{}))
	w.Add(newClaim("a", restoreOf("s")))
	w.event("Warning ProvisioningFailed ns/a", "can be restored in [node=n3] only, which allowedTopologies of the class exclude")
	if len(w.calls()) > 0 {
		t.Errorf("the driver was asked: %v", w.calls())
	}
}

func TestSnapshotTopology_damagedIsReported(t *testing.T) {
	w := newWorld(t, newClass())
	snapshot, content := newSnapshot("s")
	content.Annotations = map[string]string{claim.NodeAffinityAnnotation: "n1"}
	w.Add(snapshot, content)
	w.run(withSnapshots)
	w.Add(newClaim("a", restoreOf("s")))
	w.event("Warning ProvisioningFailed ns/a", claim.NodeAffinityAnnotation)
}

// TestSnapshotTopology_onNodes: without it, a snapshot whose volume is gone and that has
// no label would be asked for on the node that the scheduler chose.
func TestSnapshotTopology_onNodes(t *testing.T) {
	w := snapshotOn(t, "n1", true)
	w.onItsOwn("n1", withSnapshots)
	w.onItsOwn("n2", withSnapshots)
	w.Add(newClaim("a", restoreOf("s"), onNode("n2")))
	w.chosen("a", "n1")
	w.saved("pvc-uid-a")
	w.Eventually(func() error {
		for _, call := range w.calls() {
			if call.GetAccessibilityRequirements().GetRequisite()[0].GetSegments()["node"] != "n1" {
				return errors.New("n2 asked for the snapshot")
			}
		}
		return nil
	})
}
