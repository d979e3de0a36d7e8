// Package taint removes the startup taint DRIVER/agent-not-ready from this node once
// the node can attach volumes. Node provisioners set it, so that the scheduler assigns
// no pod with volumes before CSINode has the node's volume limit: without a limit a
// node accepts any number of volumes.
//
// The taint is removed when CSINode lists the driver under this node's ID with an
// allocatable count. So it stays if a driver reports no limit, and an entry of an
// earlier machine of the same name does not count.
//
// A taint that is added later is removed, too, within Window after the registration:
// Karpenter adds missing taints when it registers the node, possibly after the driver
// has started. A taint that is added after Window stays until the process restarts.
package taint

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/follow"
)

// Suffix is the taint's key after the driver's name.
const Suffix = "/agent-not-ready"

// Window is how long after the registration a new taint is removed.
const Window = 10 * time.Minute

// Options of a removal.
type Options struct {
	Client api.Kubernetes
	// Node is the name of this machine's Node.
	Node string
	// Driver is the CSI plugin name, NodeID its node_id of NodeGetInfo.
	Driver, NodeID string
	Logger         *slog.Logger
}

// Remover removes the taint from one node.
type Remover struct {
	options Options
	key     string
	log     *follow.Log
	// pending is set while the node may have the taint.
	pending bool
}

// New prepares a removal. It makes no call before Run.
func New(o Options) *Remover {
	o.Logger = o.Logger.With("component", "startup taint", "node", o.Node)
	return &Remover{options: o, key: o.Driver + Suffix, log: follow.NewLog(o.Logger), pending: true}
}

// Run waits for the registration, removes the taint, and returns when Window is over
// and the taint is removed, or when ctx ends. It has one watch of one object at a time.
// It logs each kind of failure once and retries: the process must continue to serve the
// volumes of a node that keeps its taint.
func (r *Remover) Run(ctx context.Context) {
	if r.registered(ctx) != nil {
		return
	}
	young, cancel := context.WithTimeout(ctx, Window)
	defer cancel()
	_ = r.remove(young, false)
	if r.pending && ctx.Err() == nil {
		_ = r.remove(ctx, true)
	}
}

// registered waits until CSINode has the node's volume limit. It returns an error only
// if ctx ends.
func (r *Remover) registered(ctx context.Context) error {
	return follow.Objects(ctx, r.options.Client.StorageV1().CSINodes(), follow.Options[*storagev1.CSINode]{
		What: "the CSINode " + r.options.Node, Name: r.options.Node, Log: r.log,
	}, func(_ context.Context, found map[string]*storagev1.CSINode) (bool, error) {
		return r.announced(found[r.options.Node]), nil
	})
}

func (r *Remover) announced(node *storagev1.CSINode) bool {
	if node == nil {
		return false
	}
	for _, d := range node.Spec.Drivers {
		if d.Name == r.options.Driver && d.NodeID == r.options.NodeID {
			return d.Allocatable != nil && d.Allocatable.Count != nil
		}
	}
	return false
}

// remove removes the taint whenever the node has it, until ctx ends, or once.
func (r *Remover) remove(ctx context.Context, once bool) error {
	return follow.Objects(ctx, r.options.Client.CoreV1().Nodes(), follow.Options[*corev1.Node]{
		What: "the Node " + r.options.Node, Name: r.options.Node, Log: r.log,
	}, func(ctx context.Context, found map[string]*corev1.Node) (bool, error) {
		err := r.removeFrom(ctx, found[r.options.Node])
		r.pending = err != nil
		return once && !r.pending, err
	})
}

func (r *Remover) removeFrom(ctx context.Context, node *corev1.Node) error {
	if node == nil {
		return nil
	}
	ops := removal(node.Spec.Taints, r.key)
	if len(ops) == 0 {
		return nil
	}
	_, err := r.options.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
	switch {
	case err == nil:
		r.options.Logger.InfoContext(ctx, "removed the startup taint", "taint", r.key)
		return nil
	case apierrors.IsNotFound(err):
		return nil // and its taints with it
	case apierrors.IsInvalid(err): // a test of the patch failed
		return fmt.Errorf("the taints of the node changed meanwhile: %w", err)
	}
	return fmt.Errorf("remove the taint %s: %w", r.key, err)
}

// removal returns the operations that remove all taints with a key, each guarded by a
// test that it is still at its index; nil if there is none. A key may occur once for
// each effect.
func removal(taints []corev1.Taint, key string) (ops []cluster.Op) {
	for i := len(taints) - 1; i >= 0; i-- { // from the end, so that the indexes stay valid
		if taints[i].Key != key {
			continue
		}
		at := strconv.Itoa(i)
		ops = append(ops,
			cluster.Test(key, "spec", "taints", at, "key"),
			cluster.Test(taints[i].Effect, "spec", "taints", at, "effect"),
			cluster.Remove("spec", "taints", at))
	}
	return ops
}
