package capacity

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Owner returns the owner of the objects. Kubernetes' garbage collector deletes
// them with their owner. nil means that they have no owner.
type Owner func(ctx context.Context) (*metav1.OwnerReference, error)

// The levels above a pod that can own the objects (--capacity-ownerref-level).
const (
	OwnerNone       = -1
	OwnerPod        = 0
	OwnerController = 1 // its StatefulSet, DaemonSet or ReplicaSet
	OwnerDeployment = 2
)

// OwnerAt returns the Owner for a level, nil for OwnerNone. If each node's process
// publishes its own capacity, every level above the pod is the Node: see NodeOwner.
// The pod's name comes from POD_NAME.
func OwnerAt(env *cluster.Env, podName string, level int) (Owner, error) {
	switch {
	case level < OwnerNone || level > OwnerDeployment:
		return nil, fmt.Errorf("owner level %d of the CSIStorageCapacity objects is not from %d to %d", level, OwnerNone, OwnerDeployment)
	case level == OwnerNone:
		return nil, nil
	case level > OwnerPod && !env.Scope.Central():
		return NodeOwner(env), nil
	case podName == "":
		return nil, fmt.Errorf("owner level %d of the CSIStorageCapacity objects needs the pod's name; set POD_NAME from metadata.name, or the level to %d", level, OwnerNone)
	}
	return func(ctx context.Context) (*metav1.OwnerReference, error) {
		return ResolveOwner(ctx, env, podName, level)
	}, nil
}

// NodeOwner makes the Node the owner of the objects that report its capacity, as
// it is of the kubelet's Lease. The objects survive the replacement of a pod and
// the rollout of a DaemonSet, and the garbage collector deletes them with the
// Node. An object owned by a pod or DaemonSet would outlive a removed node.
func NodeOwner(env *cluster.Env) Owner {
	return func(ctx context.Context) (*metav1.OwnerReference, error) {
		node, err := env.Core.CoreV1().Nodes().Get(ctx, env.Scope.Node, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("owner of the CSIStorageCapacity objects: read Node %q: %w", env.Scope.Node, err)
		}
		return &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, nil
	}
}

// ResolveOwner finds the owner that is level steps above a pod; OwnerPod is the
// pod itself.
func ResolveOwner(ctx context.Context, env *cluster.Env, podName string, level int) (*metav1.OwnerReference, error) {
	pod, err := env.Core.CoreV1().Pods(env.Namespace).Get(ctx, podName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("owner of the CSIStorageCapacity objects: read Pod %s/%s: %w", env.Namespace, podName, err)
	}
	if level == OwnerPod {
		return owning(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}), nil
	}
	above := metav1.GetControllerOf(pod)
	if above == nil {
		return nil, fmt.Errorf("owner of the CSIStorageCapacity objects: Pod %s/%s has no controller; set the owner level to %d", env.Namespace, podName, OwnerPod)
	}
	if level == OwnerController {
		return owning(*above), nil
	}
	return deploymentOf(ctx, env, above)
}

func deploymentOf(
	ctx context.Context, env *cluster.Env, controller *metav1.OwnerReference,
) (*metav1.OwnerReference, error) {
	if controller.Kind != "ReplicaSet" {
		return nil, fmt.Errorf("owner of the CSIStorageCapacity objects: nothing controls %s %q; set the owner level to %d", controller.Kind, controller.Name, OwnerController)
	}
	set, err := env.Core.AppsV1().ReplicaSets(env.Namespace).Get(ctx, controller.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("owner of the CSIStorageCapacity objects: read ReplicaSet %s/%s: %w", env.Namespace, controller.Name, err)
	}
	above := metav1.GetControllerOf(set)
	if above == nil {
		return nil, fmt.Errorf("owner of the CSIStorageCapacity objects: nothing controls ReplicaSet %q; set the owner level to %d", set.Name, OwnerController)
	}
	return owning(*above), nil
}

// owning makes a reference that does not block the deletion of the owner:
// BlockOwnerDeletion needs the right to change the owner's finalizers.
func owning(reference metav1.OwnerReference) *metav1.OwnerReference {
	controls := true
	reference.Controller, reference.BlockOwnerDeletion = &controls, nil
	return &reference
}

// ownerNow resolves the owner once and returns it as an object's OwnerReferences.
func (c *Controller) ownerNow(ctx context.Context) ([]metav1.OwnerReference, error) {
	if c.options.Owner == nil {
		return nil, nil
	}
	c.mu.Lock()
	owner, known := c.owner, c.owned
	c.mu.Unlock()
	if !known {
		var err error
		if owner, err = c.options.Owner(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.owner, c.owned = owner, true
		c.mu.Unlock()
	}
	if owner == nil {
		return nil, nil
	}
	return []metav1.OwnerReference{*owner}, nil
}

// forgetOwner discards the resolved owner, so that it is resolved again. The garbage
// collector deletes objects whose owner was replaced by another of its name.
func (c *Controller) forgetOwner() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned = false
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name && a.APIVersion == b.APIVersion && controls(a) == controls(b)
}

func controls(reference metav1.OwnerReference) bool {
	return reference.Controller != nil && *reference.Controller
}
