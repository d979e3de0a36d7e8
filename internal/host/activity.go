package host

import (
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// Activity returns the counters of the mounted volumes, and the room of the drivers.
func (h *Host) Activity() (api.Activity, error) {
	mounted, err := h.volumes.Activities()
	if err != nil {
		return api.Activity{}, err
	}
	answer := api.Activity{At: time.Now(), Volumes: []api.VolumeActivity{}, Drivers: []api.DriverActivity{}}
	for _, one := range mounted {
		answer.Volumes = append(answer.Volumes, volumeActivity(one))
	}
	rooms, err := h.volumes.Rooms(h.plugins.Names())
	if err != nil {
		return api.Activity{}, err
	}
	for _, driver := range h.Drivers() {
		room := rooms[driver.Name]
		one := api.DriverActivity{Name: driver.Name, State: "NotRegistered", Volumes: room.Volumes,
			Promised: room.Promised, Available: room.Available}
		for _, instance := range driver.Instances { // the one that serves is the first
			one.State = instance.State
			break
		}
		if driver.Name != "" {
			answer.Drivers = append(answer.Drivers, one)
		}
	}
	return answer, nil
}

func volumeActivity(from volumes.Activity) api.VolumeActivity {
	to := api.VolumeActivity{
		Volume: from.Name, Driver: from.Driver, Handle: from.Handle, Claim: from.Claim, Pods: from.Pods, Device: from.Device,
	}
	if from.Device != "" {
		counted := api.Counters(from.Counters)
		to.Counters = &counted
	}
	if from.Bytes != nil {
		to.Bytes = usage(*from.Bytes)
	}
	return to
}
