package client

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// PluginInfo calls GetPluginInfo.
func (c *Client) PluginInfo(ctx context.Context) (*csi.GetPluginInfoResponse, error) {
	return call(ctx, c, "GetPluginInfo", &csi.GetPluginInfoRequest{}, c.identity.GetPluginInfo)
}

// Probe returns nil when the driver is ready, and ErrUnavailable while it
// still starts. An answer that does not say is ready (CSI spec 1.13, ProbeResponse).
func (c *Client) Probe(ctx context.Context) error {
	answer, err := call(ctx, c, "Probe", &csi.ProbeRequest{}, c.identity.Probe)
	if err == nil && answer.GetReady() != nil && !answer.GetReady().GetValue() {
		return fmt.Errorf("driver %s: still starting: %w", c.options.Driver, backend.ErrUnavailable)
	}
	return err
}

// CreateVolume is the RPC of that name; the answer has a volume.
func (c *Client) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.Volume, error) {
	answer, err := call(ctx, c, "CreateVolume", request, c.controller.CreateVolume)
	return answer.GetVolume(), err
}

// DeleteVolume is the RPC of that name.
func (c *Client) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) error {
	_, err := call(ctx, c, "DeleteVolume", request, c.controller.DeleteVolume)
	return err
}

// ControllerPublishVolume returns the publish context.
func (c *Client) ControllerPublishVolume(
	ctx context.Context, request *csi.ControllerPublishVolumeRequest,
) (map[string]string, error) {
	answer, err := call(ctx, c, "ControllerPublishVolume", request, c.controller.ControllerPublishVolume)
	return answer.GetPublishContext(), err
}

// ControllerUnpublishVolume is the RPC of that name.
func (c *Client) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) error {
	_, err := call(ctx, c, "ControllerUnpublishVolume", request, c.controller.ControllerUnpublishVolume)
	return err
}

// ControllerExpandVolume is the RPC of that name.
func (c *Client) ControllerExpandVolume(
	ctx context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	return call(ctx, c, "ControllerExpandVolume", request, c.controller.ControllerExpandVolume)
}

// CreateSnapshot is the RPC of that name.
func (c *Client) CreateSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (*csi.Snapshot, error) {
	answer, err := call(ctx, c, "CreateSnapshot", request, c.controller.CreateSnapshot)
	return answer.GetSnapshot(), err
}

// DeleteSnapshot is the RPC of that name.
func (c *Client) DeleteSnapshot(ctx context.Context, request *csi.DeleteSnapshotRequest) error {
	_, err := call(ctx, c, "DeleteSnapshot", request, c.controller.DeleteSnapshot)
	return err
}

// NodeInfo calls NodeGetInfo.
func (c *Client) NodeInfo(ctx context.Context) (*csi.NodeGetInfoResponse, error) {
	return call(ctx, c, "NodeGetInfo", &csi.NodeGetInfoRequest{}, c.node.NodeGetInfo)
}

// NodeStageVolume is the RPC of that name.
func (c *Client) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) error {
	_, err := call(ctx, c, "NodeStageVolume", request, c.node.NodeStageVolume)
	return err
}

// NodeUnstageVolume is the RPC of that name.
func (c *Client) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) error {
	_, err := call(ctx, c, "NodeUnstageVolume", request, c.node.NodeUnstageVolume)
	return err
}

// NodePublishVolume is the RPC of that name.
func (c *Client) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) error {
	_, err := call(ctx, c, "NodePublishVolume", request, c.node.NodePublishVolume)
	return err
}

// NodeUnpublishVolume is the RPC of that name.
func (c *Client) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) error {
	_, err := call(ctx, c, "NodeUnpublishVolume", request, c.node.NodeUnpublishVolume)
	return err
}

// NodeExpandVolume is the RPC of that name.
func (c *Client) NodeExpandVolume(
	ctx context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	return call(ctx, c, "NodeExpandVolume", request, c.node.NodeExpandVolume)
}

// NodeGetVolumeStats is the RPC of that name.
func (c *Client) NodeGetVolumeStats(
	ctx context.Context, request *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	return call(ctx, c, "NodeGetVolumeStats", request, c.node.NodeGetVolumeStats)
}
