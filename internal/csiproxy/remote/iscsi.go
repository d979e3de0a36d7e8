package remote

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

type iscsi struct{ proxy v1.CSIProxyServiceClient }

func (i iscsi) AddPortal(ctx context.Context, portal api.Portal) error {
	response, err := i.proxy.AddISCSIPortal(ctx, &v1.AddISCSIPortalRequest{Portal: v1.PortalFromAPI(portal)})
	return done(ctx, response, err)
}

func (i iscsi) Discover(ctx context.Context, portal api.Portal) ([]string, error) {
	response, err := i.proxy.DiscoverISCSITargets(ctx, &v1.DiscoverISCSITargetsRequest{Portal: v1.PortalFromAPI(portal)})
	return response.GetIqns(), translate(ctx, err)
}

func (i iscsi) RemovePortal(ctx context.Context, portal api.Portal) error {
	response, err := i.proxy.RemoveISCSIPortal(ctx, &v1.RemoveISCSIPortalRequest{Portal: v1.PortalFromAPI(portal)})
	return done(ctx, response, err)
}

func (i iscsi) Portals(ctx context.Context) ([]api.Portal, error) {
	response, err := i.proxy.ListISCSIPortals(ctx, &v1.ListISCSIPortalsRequest{})
	if err != nil {
		return nil, translate(ctx, err)
	}
	converted := make([]api.Portal, len(response.GetPortals()))
	for n, portal := range response.GetPortals() {
		converted[n] = v1.PortalToAPI(portal)
	}
	return converted, nil
}

func (i iscsi) Connect(ctx context.Context, login api.ISCSILogin) error {
	response, err := i.proxy.ConnectISCSITarget(ctx, &v1.ConnectISCSITargetRequest{
		Portal: v1.PortalFromAPI(login.Portal), Iqn: login.IQN, AuthType: v1.AuthTypeFromAPI(login.Auth),
		ChapUsername: login.Username, ChapSecret: login.Secret.Reveal(),
	})
	return done(ctx, response, err)
}

func (i iscsi) Disconnect(ctx context.Context, portal api.Portal, iqn string) error {
	response, err := i.proxy.DisconnectISCSITarget(ctx,
		&v1.DisconnectISCSITargetRequest{Portal: v1.PortalFromAPI(portal), Iqn: iqn})
	return done(ctx, response, err)
}

func (i iscsi) Disks(ctx context.Context, portal api.Portal, iqn string) ([]uint32, error) {
	response, err := i.proxy.ListISCSIDisks(ctx, &v1.ListISCSIDisksRequest{Portal: v1.PortalFromAPI(portal), Iqn: iqn})
	return response.GetDiskNumbers(), translate(ctx, err)
}

func (i iscsi) SetMutualSecret(ctx context.Context, secret api.Secret) error {
	response, err := i.proxy.SetISCSIMutualSecret(ctx, &v1.SetISCSIMutualSecretRequest{Secret: secret.Reveal()})
	return done(ctx, response, err)
}
