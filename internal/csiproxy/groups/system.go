package groups

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/system/v1alpha1"
)

// systemVersions returns those of the group, the newest first.
func systemVersions() []api.Definition {
	g := group[api.System]{
		Name:    "system",
		Service: "System",
		Part:    func(host api.Host) api.System { return host.System },
	}
	return []api.Definition{g.Version("v1alpha1", systemCalls())}
}

func systemCalls() []call[api.System] {
	return []call[api.System]{
		unary("GetBIOSSerialNumber", getBIOSSerialNumber),
		unary("StartService", startService),
		unary("StopService", stopService),
		unary("GetService", getService),
	}
}

func getBIOSSerialNumber(
	ctx context.Context, machine api.System, _ *pb.GetBIOSSerialNumberRequest,
) (*pb.GetBIOSSerialNumberResponse, error) {
	serial, err := machine.BIOSSerialNumber(ctx)
	return &pb.GetBIOSSerialNumberResponse{SerialNumber: validText(serial)}, err
}

func startService(
	ctx context.Context, machine api.System, req *pb.StartServiceRequest,
) (*pb.StartServiceResponse, error) {
	return &pb.StartServiceResponse{}, machine.StartService(ctx, req.GetName())
}

func stopService(ctx context.Context, machine api.System, req *pb.StopServiceRequest) (*pb.StopServiceResponse, error) {
	return &pb.StopServiceResponse{}, machine.StopService(ctx, req.GetName(), req.GetForce())
}

func getService(ctx context.Context, machine api.System, req *pb.GetServiceRequest) (*pb.GetServiceResponse, error) {
	asked, err := machine.Service(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return message(asked)
}

// message rejects a start type that the API lacks: a client would take it for another.
func message(asked api.Service) (*pb.GetServiceResponse, error) {
	if asked.StartType > uint32(pb.StartType_DISABLED) {
		return nil, fmt.Errorf("service %q: Windows reports start type %d, which the API lacks",
			asked.DisplayName, asked.StartType)
	}
	status := pb.ServiceStatus_UNKNOWN
	if asked.Status <= uint32(pb.ServiceStatus_PAUSED) {
		status = pb.ServiceStatus(asked.Status)
	}
	return &pb.GetServiceResponse{
		DisplayName: validText(asked.DisplayName),
		StartType:   pb.StartType(asked.StartType),
		Status:      status,
	}, nil
}
