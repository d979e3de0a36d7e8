package provision

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

func onNodes(node string) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, _ *Options) {
		env.Scope = cluster.Scope{Node: node, Segments: map[string]string{"node": node}}
	}
}

func central() func(*cluster.Env, *Options) {
	return func(_ *cluster.Env, o *Options) { o.Topology = places{segments: map[string]string{"node": "n1"}} }
}

// TestDeployment_changesWhileAVolumeIsMade: the controllers ran on each node and
// are central now, or the other way round, and the claim is deleted meanwhile or
// is not. No volume leaks and no claim waits.
func TestDeployment_changesWhileAVolumeIsMade(t *testing.T) {
	for name, toCentral := range map[string]bool{"from nodes to a central process": true, "from a central process to nodes": false} {
		for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
			for _, point := range createPoints() {
				t.Run(name+", "+fate+", "+point, func(t *testing.T) {
					t.Parallel()
					w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
					before, after := onNodes("n1"), central()
					if !toCentral {
						before, after = after, before
					}
					w.crashAs(point, before, func() { w.Add(newClaim("a", onNode("n1"))) })
					w.controllerManager()
					if deleted {
						w.Delete(newClaim("a"))
					}
					w.run(after)
					if deleted {
						w.ended(point, "a")
						return
					}
					w.settled(1)
				})
			}
		}
	}
}

// immediateOnNode deploys a provisioner on a node that also takes claims with
// immediate binding.
func immediateOnNode(node string) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, o *Options) {
		onNodes(node)(env, o)
		o.ImmediateOnNodes, o.TurnOfNode = true, time.Millisecond
	}
}

// complete reports an intent, or a volume that has no PersistentVolume.
func (w *world) complete() error {
	if n := w.records(); n > 0 {
		return fmt.Errorf("%d intents", n)
	}
	for name := range w.Driver.Volumes() {
		if w.pv(name) == nil {
			return fmt.Errorf("volume %s has no PersistentVolume", name)
		}
	}
	return nil
}

// TestDeployment_changesWhileAVolumeOfImmediateBindingIsMade: no node is selected for
// the claim, and both nodes run afterwards.
func TestDeployment_changesWhileAVolumeOfImmediateBindingIsMade(t *testing.T) {
	for name, toCentral := range map[string]bool{"from nodes to a central process": true, "from a central process to nodes": false} {
		for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
			for _, point := range []string{"create/called", "create/saving"} {
				t.Run(name+", "+fate+", "+point, func(t *testing.T) {
					t.Parallel()
					w := nodesWorld(t, newClass(), "n1", "n2")
					before, after := central(), []func(*cluster.Env, *Options){immediateOnNode("n2"), immediateOnNode("n1")}
					if toCentral {
						before, after = immediateOnNode("n1"), []func(*cluster.Env, *Options){central()}
					}
					w.crashAs(point, before, func() { w.Add(newClaim("a")) })
					w.controllerManager()
					if deleted {
						w.Delete(newClaim("a"))
					}
					for _, as := range after {
						w.run(as)
					}
					switch {
					case deleted && toCentral:
						// The node may have sent the creation of the PersistentVolume before
						// it died: then that object is reclaimed.
						w.Eventually(w.complete)
						return
					case deleted:
						w.ended(point, "a")
						return
					}
					w.settled(1)
					for _, call := range w.calls() {
						if node := call.GetAccessibilityRequirements().GetPreferred()[0].GetSegments()["node"]; node != "n1" {
							t.Errorf("CreateVolume was called for node %s", node)
						}
					}
				})
			}
		}
	}
}
