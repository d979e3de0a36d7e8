package host

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Drain ends the processes of all pods, unmounts all volumes and returns when that is
// done. Objects stay as they are: the next host of another boot starts the pods and
// mounts the holds again, as after a power loss. This host mounts nothing more. A
// context that ends earlier is an error that names what is left; the host continues.
func (h *Host) Drain(ctx context.Context) error {
	h.pods.Drain()
	uids := map[string]types.UID{}
	err := h.store.View(func(tx *store.Tx) error {
		pods, err := tx.Pods().All()
		for _, pod := range pods {
			uids[store.KeyOf(pod)] = pod.UID
		}
		return err
	})
	if err != nil {
		return err
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
