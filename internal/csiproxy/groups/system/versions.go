// Package system is the group for the machine and its services.
package system

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/system/v1alpha1"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are those of the group, the newest first.
func Versions() []version.Definition {
	group := api.Group[hub.System]{
		Name:    "system",
		Service: "System",
		Part:    func(host hub.Host) hub.System { return host.System },
	}
	return []version.Definition{group.Version("v1alpha1", calls())}
}

func calls() []api.Call[hub.System] {
	return []api.Call[hub.System]{
		api.Unary("GetBIOSSerialNumber", getBIOSSerialNumber),
		api.Unary("StartService", startService),
		api.Unary("StopService", stopService),
		api.Unary("GetService", getService),
	}
}

func getBIOSSerialNumber(ctx context.Context, machine hub.System, _ *pb.GetBIOSSerialNumberRequest) (*pb.GetBIOSSerialNumberResponse, error) {
	serial, err := machine.BIOSSerialNumber(ctx)
	return &pb.GetBIOSSerialNumberResponse{SerialNumber: api.Text(serial)}, err
}

func startService(ctx context.Context, machine hub.System, req *pb.StartServiceRequest) (*pb.StartServiceResponse, error) {
	return &pb.StartServiceResponse{}, machine.StartService(ctx, req.GetName())
}

func stopService(ctx context.Context, machine hub.System, req *pb.StopServiceRequest) (*pb.StopServiceResponse, error) {
	return &pb.StopServiceResponse{}, machine.StopService(ctx, req.GetName(), req.GetForce())
}

func getService(ctx context.Context, machine hub.System, req *pb.GetServiceRequest) (*pb.GetServiceResponse, error) {
	asked, err := machine.Service(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return message(asked)
}

// message refuses a number that the API has no name for, since a client would take
// it for another.
func message(asked hub.Service) (*pb.GetServiceResponse, error) {
	if asked.StartType > uint32(pb.StartType_DISABLED) {
		return nil, fmt.Errorf("service %q: Windows gives start type %d, which the API has no name for", asked.DisplayName, asked.StartType)
	}
	status := pb.ServiceStatus_UNKNOWN
	if asked.Status <= uint32(pb.ServiceStatus_PAUSED) {
		status = pb.ServiceStatus(asked.Status)
	}
	return &pb.GetServiceResponse{
		DisplayName: api.Text(asked.DisplayName),
		StartType:   pb.StartType(asked.StartType),
		Status:      status,
	}, nil
}
