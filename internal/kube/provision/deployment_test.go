package provision

import (
	"testing"

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
