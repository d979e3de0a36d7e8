// Package taint takes the startup taint DRIVER/agent-not-ready off this node
// once the node can attach volumes. Provisioners of nodes set it, so that the
// scheduler sends no pod with volumes before the node's limit is known: without
// one in CSINode a node takes any number of them.
//
// It is taken off when CSINode lists the driver under this node's ID with an
// allocatable count, so it stays where a driver announces no limit, and an entry
// that another instance of the same name left does not count.
//
// A taint that comes later is taken off, too, as long as the node is young:
// Karpenter adds what is missing when it registers the node, after the driver
// may have started. After Window nobody watches any more, and a taint that is
// set by hand then stays until the process starts again.
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

// Window is how long a taint that comes after the registration is taken off.
const Window = 10 * time.Minute

// Options of a removal.
type Options struct {
	Client api.Kubernetes
	// Node is the name of this machine's Node.
	Node string
	// Driver is the CSI plugin name, NodeID what it answers to NodeGetInfo.
	Driver, NodeID string
	Logger         *slog.Logger
}

// Remover takes the taint off one node.
type Remover struct {
	options Options
	key     string
	log     *follow.Log
	// pending tells that the taint may be there.
	pending bool
}

// New prepares a removal; nothing is asked before Run.
func New(o Options) *Remover {
	o.Logger = o.Logger.With("component", "startup taint", "node", o.Node)
	return &Remover{options: o, key: o.Driver + Suffix, log: follow.NewLog(o.Logger), pending: true}
}

// Run waits for the registration, takes the taint off, and returns when the
// window is over and the taint is off, or when ctx ends. It has one watch at a
// time, of one object. What is in its way is logged once and tried again: a node
// that keeps a taint is no reason to stop serving the volumes it has.
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

// registered waits until the node's limit is known to the scheduler. Its error is
// the end of ctx.
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

// remove takes the taint off whenever it is there, until ctx ends, or once.
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

// removal are the operations that remove all taints with a key, each guarded by
// a test that it is still where it was; nil where there is none. One key may be
// there once for each effect.
func removal(taints []corev1.Taint, key string) (ops []cluster.Op) {
	for i := len(taints) - 1; i >= 0; i-- { // from the end, so that indexes hold
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
