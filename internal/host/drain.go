package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Drain ends the processes of all pods, unmounts all volumes and returns when that is
// done. Objects stay as they are: the next host of another boot starts the pods and
// mounts the holds again, as after a power loss. This host mounts nothing more. A
// context that ends earlier is an error that names what is left; the host continues.
// Without a deadline of the context it waits for drainLimit.
func (h *Host) Drain(ctx context.Context) error {
	h.pods.Drain()
	uids, limit := map[string]types.UID{}, drainMargin
	err := h.store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			uids[store.KeyOf(pod)] = pod.UID
			limit = max(limit, drainLimit(pod))
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	queue := h.set.Queue(podKind().Resource)
	for key := range uids {
		queue.Add(key)
	}
	var left []string
	err = h.set.Await(ctx, func() bool {
		left = nil
		for key, uid := range uids {
			if !h.pods.Drained(key, uid) {
				left = append(left, key)
			}
		}
		return len(left) == 0
	})
	if err == nil {
		return nil
	}
	reasons := make([]string, 0, len(left))
	for _, key := range left {
		reasons = append(reasons, fmt.Sprintf("pod %s is not drained: %s", key, h.whyNot(podKind(), key)))
	}
	return fmt.Errorf("drain: %s: %w", strings.Join(reasons, "; "), err)
}

// drainMargin is the time for all that a drain does besides waiting for processes.
const drainMargin = time.Minute

// drainLimit is how long a drain waits for a pod.
func drainLimit(pod *corev1.Pod) time.Duration { return pods.GracePeriod(pod) + drainMargin }
