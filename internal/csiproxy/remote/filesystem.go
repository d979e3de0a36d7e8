package remote

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

type filesystem struct{ proxy v1.CSIProxyServiceClient }

func (f filesystem) PathExists(ctx context.Context, path string) (bool, error) {
	response, err := f.proxy.PathExists(ctx, &v1.PathExistsRequest{Path: path})
	return response.GetExists(), translate(ctx, err)
}

func (f filesystem) Mkdir(ctx context.Context, path string) error {
	response, err := f.proxy.Mkdir(ctx, &v1.MkdirRequest{Path: path})
	return done(ctx, response, err)
}

func (f filesystem) Rmdir(ctx context.Context, path string, force bool) error {
	response, err := f.proxy.Rmdir(ctx, &v1.RmdirRequest{Path: path, Force: force})
	return done(ctx, response, err)
}

func (f filesystem) RmdirContents(ctx context.Context, path string) error {
	response, err := f.proxy.RmdirContents(ctx, &v1.RmdirContentsRequest{Path: path})
	return done(ctx, response, err)
}

func (f filesystem) Link(ctx context.Context, source, link string) error {
	response, err := f.proxy.LinkVolume(ctx, &v1.LinkVolumeRequest{StagingPath: source, TargetPath: link})
	return done(ctx, response, err)
}

func (f filesystem) IsLink(ctx context.Context, path string) (bool, error) {
	response, err := f.proxy.IsLink(ctx, &v1.IsLinkRequest{Path: path})
	return response.GetIsLink(), translate(ctx, err)
}

type smb struct{ proxy v1.CSIProxyServiceClient }

func (s smb) Mount(ctx context.Context, mount api.SMBMount) error {
	response, err := s.proxy.MountSMBShare(ctx, &v1.MountSMBShareRequest{
		RemotePath: mount.Remote, StagingPath: mount.Local, Username: mount.Username, Password: mount.Password.Reveal(),
	})
	return done(ctx, response, err)
}

func (s smb) Unmount(ctx context.Context, remote, local string) error {
	response, err := s.proxy.UnmountSMBShare(ctx, &v1.UnmountSMBShareRequest{RemotePath: remote, StagingPath: local})
	return done(ctx, response, err)
}

// system rejects every call.
type system struct{}

func noSystem() error { return fmt.Errorf("%w: %w", backend.ErrUnsupported, errNoSystem) }

func (system) BIOSSerialNumber(context.Context) (string, error)     { return "", noSystem() }
func (system) StartService(context.Context, string) error           { return noSystem() }
func (system) StopService(context.Context, string, bool) error      { return noSystem() }
func (system) Service(context.Context, string) (api.Service, error) { return api.Service{}, noSystem() }
