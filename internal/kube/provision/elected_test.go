package provision

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/coordinate"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// machine is the Node object of a node that is ready.
func machine(node string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{csidriver.TopologyKey: node}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// labelledOnNode deploys a provisioner on a node that watches the objects which are
// labelled for the node.
func labelledOnNode(node string) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, o *Options) {
		immediateOnNode(node)(env, o)
		env.Scope.Labelled = true
		env.Set.OnlyNode(node)
	}
}

// elected is the elected process next to those of the nodes.
type elected struct {
	death *apiserver.Death
	stop  func()
}

// elect starts an elected process in place of the one before, or ends that. A mortal one
// dies at a random step.
func (c *chaos) elect(run, mortal bool) {
	if c.elected != nil {
		c.elected.death.Dead.Store(true)
		c.elected.stop()
		c.elected = nil
	}
	if !run || !c.labelled {
		return
	}
	env := c.NewEnv()
	point := ""
	if points := []string{"label/volume", "label/claim", "label/content", "select/before", "select/after", "unselect"}; mortal {
		point = "coordinate/" + points[c.choose.IntN(len(points))]
	}
	death := c.Mortal(env, point)
	env.Set.PollServed(20 * time.Millisecond)
	controller := coordinate.New(env, coordinate.Options{
		Immediate: true, CrossNamespace: c.copies != nil, LostAfter: 50 * time.Millisecond, Skip: 50 * time.Millisecond,
	})
	c.elected = &elected{death: death, stop: c.Run(env, controller)}
}

// reelect replaces an elected process that has died.
func (c *chaos) reelect() {
	if c.elected != nil && c.elected.death.Dead.Load() {
		c.elect(true, true)
	}
}
