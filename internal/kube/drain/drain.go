// Package drain keeps the driver of a node alive until the node's volumes are
// detached: it is what a container's preStop hook waits for. A driver that ends
// first cannot unmount any more, and the cluster then waits six minutes before
// it detaches by force (kube-controller-manager, maxWaitForUnmountDuration).
//
// It waits only on a node that is being emptied, or is gone: a driver that is
// replaced on a node in use must end at once.
package drain

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/follow"
)

// Options of a wait.
type Options struct {
	Client api.Kubernetes
	// Node is the name of this machine's Node, Driver the CSI plugin name.
	Node, Driver string
	Logger       *slog.Logger
}

// taints are those of nodes that are being emptied: kubectl drain and cordon,
// the cluster autoscaler, Karpenter from v1 on and before.
func taints() []string {
	return []string{
		corev1.TaintNodeUnschedulable,
		"ToBeDeletedByClusterAutoscaler",
		"karpenter.sh/disrupted",
		"karpenter.sh/disruption",
	}
}

// Wait returns nil at once on a node that stays, and else when no
// VolumeAttachment of the driver names the node any more. The context bounds
// it, as the pod's grace period does; its error names what is still attached.
func Wait(ctx context.Context, o Options) error {
	w := waiter{options: o, log: follow.NewLog(o.Logger)}
	reason, err := w.leaving(ctx)
	if err != nil {
		return err
	}
	if reason == "" {
		o.Logger.InfoContext(ctx, "the node stays: nothing to wait for", "node", o.Node)
		return nil
	}
	o.Logger.InfoContext(ctx, "waiting until the volumes of this node are detached", "node", o.Node, "reason", reason)
	return w.detached(ctx)
}

type waiter struct {
	options Options
	log     *follow.Log
	left    []string // volumes that are attached, sorted
}

// leaving tells why the node is being emptied; "" means that it is not. It
// tries until ctx ends: a hook that gives up lets the driver end.
func (w *waiter) leaving(ctx context.Context) (reason string, err error) {
	err = follow.Objects(ctx, w.options.Client.CoreV1().Nodes(), follow.Options[*corev1.Node]{
		What: "the Node " + w.options.Node, Name: w.options.Node, Log: w.log,
	}, func(_ context.Context, found map[string]*corev1.Node) (bool, error) {
		reason = reasonOf(found[w.options.Node])
		return true, nil
	})
	return reason, err
}

func reasonOf(node *corev1.Node) string {
	switch {
	case node == nil:
		return "there is no such Node"
	case node.DeletionTimestamp != nil:
		return "the Node is being deleted"
	case node.Spec.Unschedulable:
		return "the Node is unschedulable"
	}
	for _, taint := range node.Spec.Taints {
		if slices.Contains(taints(), taint.Key) {
			return "the Node has the taint " + taint.Key
		}
	}
	return ""
}

// detached waits for the last VolumeAttachment. The API server can select them
// by their own name alone (no field of their spec is selectable, Kubernetes
// 1.37), so this reads all of them once, and then what changes.
func (w *waiter) detached(ctx context.Context) error {
	err := follow.Objects(ctx, w.options.Client.StorageV1().VolumeAttachments(), follow.Options[*storagev1.VolumeAttachment]{
		What: "the VolumeAttachments of this node", Log: w.log,
		Keep: func(a *storagev1.VolumeAttachment) bool {
			return a.Spec.NodeName == w.options.Node && a.Spec.Attacher == w.options.Driver
		},
	}, w.see)
	if err != nil && len(w.left) > 0 {
		return fmt.Errorf("still attached to node %s: %s: %w", w.options.Node, strings.Join(w.left, ", "), err)
	}
	return err
}

func (w *waiter) see(ctx context.Context, attached map[string]*storagev1.VolumeAttachment) (bool, error) {
	before := len(w.left)
	w.left = w.left[:0]
	for _, name := range slices.Sorted(maps.Keys(attached)) {
		w.left = append(w.left, volumeOf(attached[name]))
	}
	if len(w.left) != before {
		w.options.Logger.InfoContext(ctx, "attached volumes", "count", len(w.left), "volumes", w.left)
	}
	return len(w.left) == 0, nil
}

func volumeOf(a *storagev1.VolumeAttachment) string {
	if a.Spec.Source.PersistentVolumeName != nil {
		return *a.Spec.Source.PersistentVolumeName
	}
	return a.Name // an inline volume that was migrated
}
