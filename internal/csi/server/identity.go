package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

type identity struct {
	csi.UnimplementedIdentityServer
	options Options
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.options.Name, VendorVersion: i.options.Version}, nil
}

func (i *identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: pluginCapabilities(i.options.Traits, i.options.Features)}, nil
}

// Probe asks both halves that this process has. CSI knows one code for a
// plugin that is not well, for any cause.
func (i *identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	err := i.probe(ctx)
	switch {
	case err == nil:
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
	case ctx.Err() != nil, errors.Is(err, backend.ErrPrecondition):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", backend.ErrPrecondition, err.Error())
}

func (i *identity) probe(ctx context.Context) error {
	if i.options.Mode.Controls() {
		if err := i.options.Guard.Probe(ctx); err != nil {
			return err
		}
	}
	if i.options.Mode.Serves() {
		return i.options.Engine.Probe(ctx)
	}
	return nil
}
