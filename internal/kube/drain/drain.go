// Package drain implements a preStop hook that keeps a node's driver running until
// the node's volumes are detached. Without it the driver may end before the kubelet
// has unmounted them. The cluster then waits six minutes before it detaches by force
// (kube-controller-manager, maxWaitForUnmountDuration).
//
// The hook waits only if the node is drained or deleted: a driver that is replaced on
// a node in use must end at once.
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

// taints returns the taints of nodes that are drained: those of kubectl drain and
// cordon, of the cluster autoscaler, and of Karpenter from v1 on and before.
func taints() []string {
	return []string{
		corev1.TaintNodeUnschedulable,
		"ToBeDeletedByClusterAutoscaler",
		"karpenter.sh/disrupted",
		"karpenter.sh/disruption",
	}
}

// Wait returns nil at once if the node is not drained, otherwise when no
// VolumeAttachment of the driver names the node any more. If ctx ends first, the error
// names the volumes that are still attached.
func Wait(ctx context.Context, o Options) error {
	w := waiter{options: o, log: follow.NewLog(o.Logger)}
	reason, err := w.leaving(ctx)
	if err != nil {
		return err
	}
	if reason == "" {
		o.Logger.InfoContext(ctx, "the node is not being drained; not waiting for its volumes", "node", o.Node)
		return nil
	}
	o.Logger.InfoContext(ctx, "waiting until the volumes of this node are detached", "node", o.Node, "reason", reason)
	return w.detached(ctx)
}

type waiter struct {
	options   Options
	log       *follow.Log
	remaining []string // volumes that are attached, sorted
}

// leaving returns the reason why the node counts as drained; "" means that it does
// not. It retries until ctx ends, because the driver ends when the hook returns.
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
		return "the Node does not exist"
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

// detached waits until the last VolumeAttachment is gone. The API server selects them
// by name only (no field of their spec is selectable, Kubernetes 1.37), so detached
// lists all of them once and then watches.
func (w *waiter) detached(ctx context.Context) error {
	err := follow.Objects(ctx, w.options.Client.StorageV1().VolumeAttachments(), follow.Options[*storagev1.VolumeAttachment]{
		What: "the VolumeAttachments of this node", Log: w.log,
		Keep: func(a *storagev1.VolumeAttachment) bool {
			return a.Spec.NodeName == w.options.Node && a.Spec.Attacher == w.options.Driver
		},
	}, w.see)
	if err != nil && len(w.remaining) > 0 {
		return fmt.Errorf("still attached to node %s: %s: %w", w.options.Node, strings.Join(w.remaining, ", "), err)
	}
	return err
}

func (w *waiter) see(ctx context.Context, attached map[string]*storagev1.VolumeAttachment) (bool, error) {
	before := len(w.remaining)
	w.remaining = w.remaining[:0]
	for _, name := range slices.Sorted(maps.Keys(attached)) {
		w.remaining = append(w.remaining, volumeOf(attached[name]))
	}
	if len(w.remaining) != before {
		w.options.Logger.InfoContext(ctx, "attached volumes", "count", len(w.remaining), "volumes", w.remaining)
	}
	return len(w.remaining) == 0, nil
}

func volumeOf(a *storagev1.VolumeAttachment) string {
	if a.Spec.Source.PersistentVolumeName != nil {
		return *a.Spec.Source.PersistentVolumeName
	}
	return a.Name // an inline volume that was migrated
}
