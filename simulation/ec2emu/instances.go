package ec2emu

import (
	"net/http"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// instanceView is an instance on the control interface.
type instanceView struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	State      string            `json:"state"`
	Zone       string            `json:"zone"`
	Interfaces int               `json:"interfaces"`
	Devices    map[string]device `json:"devices"` // by name
}

type device struct {
	Volume string `json:"volume"`
	State  string `json:"state"`
}

func (s *Server) instance(id string) (instanceView, error) {
	info, err := s.world.Info(id)
	if err != nil {
		return instanceView{}, err
	}
	view := instanceView{
		ID: info.InstanceID, Type: info.InstanceType, State: info.State.Name, Zone: info.Placement.AvailabilityZone,
		Interfaces: len(info.Interfaces), Devices: map[string]device{},
	}
	for _, d := range info.BlockDevices {
		view.Devices[d.DeviceName] = device{Volume: d.EBS.VolumeID, State: d.EBS.Status}
	}
	return view, nil
}

func (s *Server) controlInstances(*http.Request, []byte) (any, error) {
	views := []instanceView{}
	for _, id := range s.world.InstanceIDs() {
		if view, err := s.instance(id); err == nil { // it may have been removed just now
			views = append(views, view)
		}
	}
	return views, nil
}

func (s *Server) controlRunInstance(_ *http.Request, sent []byte) (any, error) {
	var spec world.InstanceSpec
	if err := strictJSON(sent, &spec); err != nil {
		return nil, wrong("%w", err)
	}
	id, err := s.world.RunInstance(spec)
	if err != nil {
		return nil, wrong("%w", err)
	}
	return s.instance(id)
}

// controlInstance is POST /instances/ID/CHANGE.
func (s *Server) controlInstance(r *http.Request, sent []byte) (any, error) {
	id := r.PathValue("id")
	var err error
	switch change := r.PathValue("change"); change {
	case "stop":
		err = s.world.StopInstance(id)
	case "start":
		err = s.world.StartInstance(id)
	case "reboot":
		err = s.world.RebootInstance(id)
	case "terminate":
		err = s.world.TerminateInstance(id)
	case "interfaces":
		var wanted struct {
			Count int `json:"count"`
		}
		if err := strictJSON(sent, &wanted); err != nil {
			return nil, wrong("%w", err)
		}
		err = s.world.SetInterfaces(id, wanted.Count)
	case "hidden-names":
		var wanted struct {
			Names []string `json:"names"`
		}
		if err := strictJSON(sent, &wanted); err != nil {
			return nil, wrong("%w", err)
		}
		err = s.world.SetHiddenNames(id, wanted.Names)
	default:
		return nil, unknown("%s: want stop, start, reboot, terminate, interfaces or hidden-names", change)
	}
	if err != nil {
		return nil, err
	}
	return s.instance(id)
}
