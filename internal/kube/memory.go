package kube

import (
	"context"
	"time"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// fillTime is the time after the start in which caches of custom resources fill.
const fillTime = 20 * time.Second

// freeAfterFill returns the garbage of filling the caches to the system, which is as
// large as the caches themselves. The runtime would keep it, because an idle process
// rarely collects garbage, and most processes are idle, on every node.
func freeAfterFill(ctx context.Context, set *cluster.Set, free func()) error {
	if err := set.Wait(ctx); err != nil {
		return unless(ctx, err)
	}
	if work.Sleep(ctx, fillTime) {
		free()
	}
	return nil
}
