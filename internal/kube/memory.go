package kube

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// settling is for how long after the start caches of custom resources may fill.
const settling = 20 * time.Second

// giveBack returns to the system what the filling of the caches has left: as
// much again as what stays. By itself the runtime keeps it for the next
// garbage, of which an idle process makes little; most are idle, on every node.
func giveBack(ctx context.Context, set *cluster.Set) error {
	if err := set.Wait(ctx); err != nil {
		return unless(ctx, err)
	}
	if work.Sleep(ctx, settling) {
		debug.FreeOSMemory()
	}
	return nil
}
