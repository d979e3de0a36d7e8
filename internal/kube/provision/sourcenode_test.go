package provision

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// lyingOn puts a PersistentVolume on a node.
func lyingOn(node string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
}

// cloningWorld has two nodes, and a bound claim "src" on n1.
func cloningWorld(t *testing.T, late bool) *world {
	class := newClass()
	if late {
		class = newClass(waitForConsumer)
	}
	w := nodesWorld(t, class, "n1", "n2")
	w.Driver.Controller = append(w.Driver.Controller, csi.ControllerServiceCapability_RPC_CLONE_VOLUME)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	objects := bound("src")
	w.Add(objects[0], newVolume("src", lyingOn("n1")))
	return w
}

func (w *world) chosen(name, node string) {
	w.t.Helper()
	w.Eventually(func() error {
		if now := selectedNode(w.claimNow(name)); now != node {
			return fmt.Errorf("%s is for node %q", name, now)
		}
		return nil
	})
}

func TestFollow_aCloneGoesToTheNodeOfItsSource(t *testing.T) {
	for name, late := range map[string]bool{"late binding": true, "immediate binding": false} {
		t.Run(name, func(t *testing.T) {
			w := cloningWorld(t, late)
			w.onItsOwn("n1")
			w.onItsOwn("n2")
			pvc := newClaim("a", cloneOf("src"))
			if late {
				pvc = newClaim("a", cloneOf("src"), onNode("n2"))
			}
			w.Add(pvc)
			w.chosen("a", "n1")
			pv := w.saved("pvc-uid-a")
			if !(cluster.Scope{Node: "n1", Segments: map[string]string{"node": "n1"}}).OwnsVolume(pv) {
				t.Errorf("affinity %v", pv.Spec.NodeAffinity)
			}
			if n := len(w.calls()); n != 1 {
				t.Errorf("%d calls of CreateVolume", n)
			}
			if late {
				w.event("Warning ProvisioningFailed ns/a", `is on another node than "n2"`)
			}
		})
	}
}

func TestFollow_aRestoreGoesToTheNodeOfItsSnapshot(t *testing.T) {
	for name, where := range map[string]func(*world){
		"by the label": func(w *world) {
			snapshot, content := newSnapshot("snap")
			content.Labels = map[string]string{claim.ManagedByLabel: "n1"}
			w.Add(snapshot, content)
		},
		"by the volume": func(w *world) {
			snapshot, content := newSnapshot("snap")
			handle := "id-pvc-uid-src"
			content.Spec.Source.VolumeHandle, content.Spec.Source.SnapshotHandle = &handle, nil
			w.Add(snapshot, content)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := cloningWorld(t, true)
			w.Driver.Controller = append(w.Driver.Controller, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
			w.Driver.Creation.Strict = false
			where(w)
			w.onItsOwn("n1", withSnapshots)
			w.onItsOwn("n2", withSnapshots)
			w.Add(newClaim("a", restoreOf("snap"), onNode("n2")))
			w.chosen("a", "n1")
			w.saved("pvc-uid-a")
		})
	}
}

func TestFollow_waitsForAPod(t *testing.T) {
	w := cloningWorld(t, true)
	w.onItsOwn("n1")
	w.onItsOwn("n2")
	// The controller-manager has not named a provisioner yet.
	w.Add(newClaim("a", cloneOf("src"), func(pvc *corev1.PersistentVolumeClaim) { delete(pvc.Annotations, provisionerAnnotation) }))
	w.Never(100*time.Millisecond, func() error {
		if node := selectedNode(w.claimNow("a")); node != "" || len(w.calls()) > 0 {
			return fmt.Errorf("node %q, calls %v", node, w.calls())
		}
		return nil
	})
}

func TestFollow_aMissingNodeIsNoReasonToGoRound(t *testing.T) {
	w := cloningWorld(t, true)
	w.onItsOwn("n2") // n1 is down
	w.Add(newClaim("a", cloneOf("src"), onNode("n2")))
	w.chosen("a", "")
	w.Put(newClaim("a", cloneOf("src"), onNode("n2"))) // the scheduler insists
	w.Never(100*time.Millisecond, func() error {
		if node := selectedNode(w.claimNow("a")); node != "n2" {
			return fmt.Errorf("taken back again at once: %q", node)
		}
		return nil
	})
	if n := len(w.calls()); n != 0 {
		t.Errorf("%d calls of CreateVolume", n)
	}
}

func TestFollow_aFullNodeDoesNotTakeItBackAtOnce(t *testing.T) {
	w := cloningWorld(t, true)
	w.answer(csidriver.Fail(codes.ResourceExhausted, "full"))
	w.onItsOwn("n1")
	w.Add(newClaim("a", cloneOf("src"), onNode("n1")))
	w.chosen("a", "")
	w.Never(100*time.Millisecond, func() error {
		if node := selectedNode(w.claimNow("a")); node != "" {
			return fmt.Errorf("taken again at once by %q", node)
		}
		return nil
	})
}

func TestFollow_oneNodeTellsOfAMissingSource(t *testing.T) {
	w := cloningWorld(t, false)
	w.onItsOwn("n1")
	w.onItsOwn("n2")
	w.Add(newClaim("a", cloneOf("nothing")))
	w.event("Warning ProvisioningFailed ns/a", `PersistentVolumeClaim "ns/nothing", does not exist`)
	time.Sleep(50 * time.Millisecond)
	told := 0
	for _, event := range w.Events() {
		if strings.Contains(event, "does not exist") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	w.Driver.AddVolume("id-pvc-uid-nothing", 1<<30)
	w.Add(newVolume("nothing", lyingOn("n2")), bound("nothing")[0])
	w.chosen("a", "n2")
}
