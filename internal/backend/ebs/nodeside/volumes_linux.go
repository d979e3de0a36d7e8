package nodeside

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

var _ backend.NodeVolumeLister = (*Node)(nil)

// NodeVolumes lists the volumes that the driver has opened on this machine and has not
// closed, also before a reboot, and that have a disk. Disks of other programs are not
// listed.
func (n *Node) NodeVolumes(ctx context.Context) ([]backend.NodeVolume, error) {
	claimed, err := n.records.claimed()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	for id := range n.opened { // without a state directory there are no claims
		claimed[id] = true
	}
	n.mu.Unlock()
	var volumes []backend.NodeVolume
	for _, id := range slices.Sorted(maps.Keys(claimed)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		disk, devices, err := n.present(id)
		if err != nil {
			n.options.Logger.Warn("the devices of a volume cannot be listed", "volume", id, "error", err)
		}
		if disk == nil || len(devices) == 0 {
			continue
		}
		volumes = append(volumes, backend.NodeVolume{ID: id, Size: devices[0].Size, Devices: devices})
	}
	return volumes, nil
}
