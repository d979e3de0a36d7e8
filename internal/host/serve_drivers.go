package host

import (
	"cmp"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/supervise"
)

// Drivers lists the drivers with their processes, and the units that drivers are
// started from.
func (h *Host) Drivers() []api.Driver {
	var drivers []api.Driver
	for _, status := range h.plugins.List() {
		if last := len(drivers) - 1; last < 0 || drivers[last].Name != status.Name {
			drivers = append(drivers, api.Driver{Name: status.Name, Instances: []api.DriverInstance{}})
		}
		of := &drivers[len(drivers)-1]
		of.Instances = append(of.Instances, instanceOf(status))
	}
	if h.supervisor == nil {
		return drivers
	}
	for _, status := range h.supervisor.List() {
		drivers = addUnit(drivers, status)
	}
	slices.SortStableFunc(drivers, func(a, b api.Driver) int { return cmp.Compare(a.Name, b.Name) })
	return drivers
}

func instanceOf(status plugins.DriverStatus) api.DriverInstance {
	return api.DriverInstance{
		Socket: status.Socket, Endpoint: status.Endpoint, State: string(status.State), Serving: status.Serving,
		Unready: status.Unready, Since: status.Since, Error: status.LastError, Version: status.Version, NodeID: status.Node.ID,
		Topology: status.Node.Topology, MaxVolumes: status.Node.MaxVolumes, Capabilities: status.Capabilities,
		Warnings: status.Warnings, Attempts: status.Attempts, Next: status.Next,
	}
}

// addUnit adds a unit to the driver of its name, or lists it by itself.
func addUnit(drivers []api.Driver, status supervise.Status) []api.Driver {
	unit := &api.DriverUnit{
		File: status.File, State: string(status.State), Since: status.Since, PID: status.PID,
		Restarts: status.Restarts, Error: status.LastError, Log: status.Log,
	}
	at := slices.IndexFunc(drivers, func(driver api.Driver) bool { return status.Name != "" && driver.Name == status.Name })
	if at < 0 {
		return append(drivers, api.Driver{Name: status.Name, Instances: []api.DriverInstance{}, Unit: unit})
	}
	drivers[at].Unit = unit
	return drivers
}
