package groups

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/iscsi/v1alpha2"
)

func iscsiCalls() []call[api.ISCSI] {
	return []call[api.ISCSI]{
		unary("AddTargetPortal", addTargetPortal),
		unary("DiscoverTargetPortal", discoverTargetPortal),
		unary("RemoveTargetPortal", removeTargetPortal),
		unary("ListTargetPortals", listTargetPortals),
		unary("ConnectTarget", connectTarget),
		unary("DisconnectTarget", disconnectTarget),
		unary("GetTargetDisks", getTargetDisks),
	}
}

// mutualCalls are the calls of v1alpha2 alone.
func mutualCalls() []call[api.ISCSI] {
	return []call[api.ISCSI]{unary("SetMutualChapSecret", setMutualChapSecret)}
}

func addTargetPortal(
	ctx context.Context, initiator api.ISCSI, req *pb.AddTargetPortalRequest,
) (*pb.AddTargetPortalResponse, error) {
	at, err := portal(req.GetTargetPortal())
	if err != nil {
		return nil, err
	}
	return &pb.AddTargetPortalResponse{}, initiator.AddPortal(ctx, at)
}

func discoverTargetPortal(
	ctx context.Context, initiator api.ISCSI, req *pb.DiscoverTargetPortalRequest,
) (*pb.DiscoverTargetPortalResponse, error) {
	at, err := portal(req.GetTargetPortal())
	if err != nil {
		return nil, err
	}
	iqns, err := initiator.Discover(ctx, at)
	return &pb.DiscoverTargetPortalResponse{Iqns: names(iqns)}, err
}

func removeTargetPortal(
	ctx context.Context, initiator api.ISCSI, req *pb.RemoveTargetPortalRequest,
) (*pb.RemoveTargetPortalResponse, error) {
	at, err := portal(req.GetTargetPortal())
	if err != nil {
		return nil, err
	}
	return &pb.RemoveTargetPortalResponse{}, initiator.RemovePortal(ctx, at)
}

func listTargetPortals(
	ctx context.Context, initiator api.ISCSI, _ *pb.ListTargetPortalsRequest,
) (*pb.ListTargetPortalsResponse, error) {
	portals, err := initiator.Portals(ctx)
	return &pb.ListTargetPortalsResponse{TargetPortals: messages(portals)}, err
}

func connectTarget(
	ctx context.Context, initiator api.ISCSI, req *pb.ConnectTargetRequest,
) (*pb.ConnectTargetResponse, error) {
	asked, err := login(req)
	if err != nil {
		return nil, err
	}
	return &pb.ConnectTargetResponse{}, initiator.Connect(ctx, asked)
}

func disconnectTarget(
	ctx context.Context, initiator api.ISCSI, req *pb.DisconnectTargetRequest,
) (*pb.DisconnectTargetResponse, error) {
	at, err := portal(req.GetTargetPortal())
	if err != nil {
		return nil, err
	}
	return &pb.DisconnectTargetResponse{}, initiator.Disconnect(ctx, at, req.GetIqn())
}

func getTargetDisks(
	ctx context.Context, initiator api.ISCSI, req *pb.GetTargetDisksRequest,
) (*pb.GetTargetDisksResponse, error) {
	at, err := portal(req.GetTargetPortal())
	if err != nil {
		return nil, err
	}
	numbers, err := initiator.Disks(ctx, at, req.GetIqn())
	return &pb.GetTargetDisksResponse{DiskIDs: texts(numbers)}, err
}

func setMutualChapSecret(
	ctx context.Context, initiator api.ISCSI, req *pb.SetMutualChapSecretRequest,
) (*pb.SetMutualChapSecretResponse, error) {
	return &pb.SetMutualChapSecretResponse{}, initiator.SetMutualSecret(ctx, api.Secret(req.GetMutualChapSecret()))
}
