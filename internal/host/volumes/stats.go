package volumes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// StatsTimeout bounds NodeGetVolumeStats: the caller must not wait for a dead backend.
const StatsTimeout = 10 * time.Second

// Usage is a volume's capacity in bytes or inodes, and how much of it is used. A field is
// 0 if the driver did not report it.
type Usage struct {
	Total, Used, Available int64
}

// Stats is the usage of a volume, and the pods that use it.
type Stats struct {
	Driver, Handle string
	// Bytes and Inodes are of the filesystem; a block device has Bytes.Total only.
	Bytes, Inodes Usage
	// Pods use the volume on this machine.
	Pods []string
}

// Stats asks the driver how full the volume of a claim is. It waits for no other
// call for the volume, and StatsTimeout at most for the driver.
func (m *Manager) Stats(ctx context.Context, key string) (Stats, error) {
	found, err := m.boundClaim(key)
	if err != nil {
		return Stats{}, err
	}
	if found.volume == nil || found.volume.Spec.CSI == nil {
		return Stats{}, waitingFor("PersistentVolumeClaim", key, "%s has no volume", claim.Describe(found.claim))
	}
	use, err := m.useNamed(newUse(found.volume).Name)
	if err != nil {
		return Stats{}, err
	}
	if use == nil {
		return Stats{}, waitingFor("PersistentVolumeClaim", key,
			"%s is not mounted: its usage is known while a pod uses it", claim.Describe(found.claim))
	}
	stats := Stats{Driver: use.Driver, Handle: use.Handle}
	for _, path := range slices.Sorted(maps.Keys(use.Targets)) {
		stats.Pods = append(stats.Pods, use.Targets[path].Pod)
	}
	path, _ := publishedFor(use, types.UID(""))
	if path == "" {
		return stats, waitingFor("PersistentVolumeClaim", key, "%s is not mounted yet", claim.Describe(found.claim))
	}
	return stats, m.askStats(ctx, use, path, &stats)
}

func (m *Manager) askStats(ctx context.Context, use *store.VolumeUse, path string, stats *Stats) error {
	ctx, cancel := context.WithTimeout(ctx, StatsTimeout)
	defer cancel()
	return m.onDriver(ctx, use.Driver, func(driver *plugins.Driver) error {
		can, err := driver.Client.NodeCapabilities(ctx)
		if err != nil {
			return err
		}
		if !can.Stats {
			return fmt.Errorf("%w: driver %s does not report how full volumes are (GET_VOLUME_STATS)",
				claim.ErrDriverFailed, driver.Name)
		}
		request := &csi.NodeGetVolumeStatsRequest{VolumeId: use.Handle, VolumePath: path}
		answer, err := driver.Client.NodeGetVolumeStats(ctx, request)
		if err != nil {
			return err
		}
		return stats.fill(driver.Name, answer.GetUsage())
	})
}

func (s *Stats) fill(driver string, usage []*csi.VolumeUsage) error {
	if len(usage) == 0 {
		return fmt.Errorf("%w: driver %s answered NodeGetVolumeStats without usage", claim.ErrDriverFailed, driver)
	}
	for _, u := range usage {
		if u.GetTotal() < 0 || u.GetUsed() < 0 || u.GetAvailable() < 0 {
			return fmt.Errorf("%w: driver %s answered NodeGetVolumeStats with a negative number",
				claim.ErrDriverFailed, driver)
		}
		usage := Usage{Total: u.GetTotal(), Used: u.GetUsed(), Available: u.GetAvailable()}
		switch u.GetUnit() {
		case csi.VolumeUsage_BYTES:
			s.Bytes = usage
		case csi.VolumeUsage_INODES:
			s.Inodes = usage
		}
	}
	return nil
}
