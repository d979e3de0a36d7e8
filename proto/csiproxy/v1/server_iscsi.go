package v1

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

func (s *server) AddISCSIPortal(ctx context.Context, r *AddISCSIPortalRequest) (*AddISCSIPortalResponse, error) {
	return &AddISCSIPortalResponse{}, s.host.ISCSI.AddPortal(ctx, PortalToAPI(r.GetPortal()))
}

func (s *server) RemoveISCSIPortal(
	ctx context.Context, r *RemoveISCSIPortalRequest,
) (*RemoveISCSIPortalResponse, error) {
	return &RemoveISCSIPortalResponse{}, s.host.ISCSI.RemovePortal(ctx, PortalToAPI(r.GetPortal()))
}

func (s *server) ListISCSIPortals(ctx context.Context, _ *ListISCSIPortalsRequest) (*ListISCSIPortalsResponse, error) {
	portals, err := s.host.ISCSI.Portals(ctx)
	if err != nil {
		return nil, err
	}
	converted := make([]*ISCSIPortal, len(portals))
	for i, portal := range portals {
		converted[i] = PortalFromAPI(portal)
	}
	return &ListISCSIPortalsResponse{Portals: converted}, nil
}

func (s *server) DiscoverISCSITargets(
	ctx context.Context, r *DiscoverISCSITargetsRequest,
) (*DiscoverISCSITargetsResponse, error) {
	iqns, err := s.host.ISCSI.Discover(ctx, PortalToAPI(r.GetPortal()))
	return &DiscoverISCSITargetsResponse{Iqns: iqns}, err
}

func (s *server) ConnectISCSITarget(
	ctx context.Context, r *ConnectISCSITargetRequest,
) (*ConnectISCSITargetResponse, error) {
	login, err := LoginToAPI(r)
	if err != nil {
		return nil, err
	}
	return &ConnectISCSITargetResponse{}, s.host.ISCSI.Connect(ctx, login)
}

func (s *server) DisconnectISCSITarget(
	ctx context.Context, r *DisconnectISCSITargetRequest,
) (*DisconnectISCSITargetResponse, error) {
	return &DisconnectISCSITargetResponse{}, s.host.ISCSI.Disconnect(ctx, PortalToAPI(r.GetPortal()), r.GetIqn())
}

func (s *server) ListISCSIDisks(ctx context.Context, r *ListISCSIDisksRequest) (*ListISCSIDisksResponse, error) {
	disks, err := s.host.ISCSI.Disks(ctx, PortalToAPI(r.GetPortal()), r.GetIqn())
	return &ListISCSIDisksResponse{DiskNumbers: disks}, err
}

func (s *server) SetISCSIMutualSecret(
	ctx context.Context, r *SetISCSIMutualSecretRequest,
) (*SetISCSIMutualSecretResponse, error) {
	return &SetISCSIMutualSecretResponse{}, s.host.ISCSI.SetMutualSecret(ctx, api.Secret(r.GetSecret()))
}
