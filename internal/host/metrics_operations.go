package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// unfinished lists the host's unfinished operations in the background: it reads the store.
type unfinished struct {
	operations concurrency.Background[[]metrics.Operation]
}

func newUnfinished(set *reconcile.Set, manager *volumes.Manager, logger *slog.Logger) *unfinished {
	u := &unfinished{}
	u.operations.Fresh, u.operations.Share = time.Second, 20
	u.operations.Ask = func(context.Context) []metrics.Operation {
		found, err := manager.Operations(pendingOf(set, manager))
		if err != nil {
			logger.Warn("the metrics lack the unfinished operations", "error", err)
		}
		return found
	}
	return u
}

// view is a metrics.View.
func (u *unfinished) view(report func(metrics.Operation)) {
	for _, operation := range u.operations.Get(time.Second).Value {
		report(operation)
	}
}

// pendingOf returns what the controllers have not completed: the work of their queues, and
// the objects that wait for a change.
func pendingOf(set *reconcile.Set, manager *volumes.Manager) []volumes.Pending {
	type object struct{ controller, key string }
	found := map[object]volumes.Pending{}
	for _, queue := range set.Queues() {
		queue.Work(func(work reconcile.Work) {
			found[object{queue.Name(), work.Key}] = volumes.Pending{Controller: queue.Name(), Key: work.Key,
				Running: work.Running, Err: work.LastError, Since: work.Began}
		})
	}
	manager.Waiting(func(waits volumes.Pending) {
		known := found[object{waits.Controller, waits.Key}]
		if known.Err == nil {
			known.Controller, known.Key, known.Err = waits.Controller, waits.Key, waits.Err
			if known.Since.IsZero() {
				known.Since = waits.Since
			}
			found[object{waits.Controller, waits.Key}] = known
		}
	})
	pending := make([]volumes.Pending, 0, len(found))
	for _, one := range found {
		pending = append(pending, one)
	}
	return pending
}

// newVolumeInfos lists the volumes in use in the background: it reads the store.
func newVolumeInfos(manager *volumes.Manager) *concurrency.Background[[]metrics.VolumeInfo] {
	return &concurrency.Background[[]metrics.VolumeInfo]{Fresh: 5 * time.Second, Share: 20,
		Ask: func(context.Context) []metrics.VolumeInfo {
			infos, _ := manager.VolumeInfos() // the store reports damage elsewhere
			return infos
		}}
}

// driverNames are the drivers that the host knows.
func (h *Host) driverNames() []string {
	var names []string
	for _, driver := range h.Drivers() {
		if driver.Name != "" {
			names = append(names, driver.Name)
		}
	}
	return names
}
