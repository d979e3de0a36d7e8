package supervise

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// TestRun_anUpgradeUnderLoadFailsNoPublish replaces a driver, process by process,
// while volumes are published and unpublished all the time.
func TestRun_anUpgradeUnderLoadFailsNoPublish(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\nrolling: true\n")
	h.until(func() bool { return h.registered("d.example") })
	old := h.pid("d.example")
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var published atomic.Int64
	for worker := range 8 {
		load.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				id := fmt.Sprintf("v-%d-%d", worker, round)
				if err := h.publish(t.Context(), id); err != nil {
					t.Errorf("after %d: %v", published.Load(), err)
					return
				}
				published.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	h.until(func() bool { return published.Load() > 100 })
	h.unit("d.example", "d.example", "register: true\nrolling: true\nstopGrace: 20s\n")
	h.until(func() bool { now := h.pid("d.example"); return now != 0 && now != old && !alive(old) })
	before := published.Load()
	h.until(func() bool { return published.Load() > before+100 })
	cancel()
	load.Wait()
	t.Logf("%d volumes were published", published.Load())
}

// publish makes the volume manager's calls for one volume.
func (h *host) publish(ctx context.Context, id string) error {
	driver, err := h.manager.Driver("d.example")
	if err != nil {
		return err
	}
	if err := driver.Client.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: id, TargetPath: "/" + id}); err != nil {
		return err
	}
	return driver.Client.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: "/" + id})
}
