// Package csidriver is a CSI driver in memory for tests of callers of drivers.
// It follows the rules of CSI (a repeated creation finds the volume by its name,
// the deletion of an absent volume succeeds), counts its calls, and fails, hangs
// or answers wrongly where a test configures that.
package csidriver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/internal/csi/operations"
)

// Driver is the driver. Set the fields before it serves.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer

	Name, NodeID string
	Topology     map[string]string
	Plugin       []csi.PluginCapability_Service_Type
	Controller   []csi.ControllerServiceCapability_RPC_Type
	Node         []csi.NodeServiceCapability_RPC_Type
	// Before is called with each call's name before anything is done, and After
	// when it was done; an error of either is the answer. It may be nil.
	Before, After func(ctx context.Context, rpc string, request any) error
	// Warnings are added to the answers of calls that succeed, by name.
	Warnings map[string]string
	// Forgetful answers NOT_FOUND to NodeUnpublishVolume and NodeUnstageVolume for
	// what is not published or staged, as drivers do that look the volume up first.
	Forgetful bool
	// Publish and Unpublish act on the target path as a node does.
	Publish   func(*csi.NodePublishVolumeRequest) error
	Unpublish func(*csi.NodeUnpublishVolumeRequest) error
	// Creation is how volumes are made.
	Creation Creation
	// Attach is how volumes are published to nodes and listed.
	Attach Attach
	// Capacity is how much room there is.
	Capacity Capacity
	// Health is how the health of volumes is reported.
	Health Health
	// Snapshots and Groups are how snapshots are taken.
	Snapshots Snapshots
	Groups    Groups
	// Changes is how volumes are expanded and modified.
	Changes Changes
	// Operations, if set, lists what the driver is doing. Most drivers have no such service.
	Operations func() []*operations.Operation

	mu      sync.Mutex
	calls   []string
	volumes map[string]*csi.Volume // by name
	// attached (by volume and node), staged and published are the volumes in use, by volume ID.
	attached  map[string]map[string]attachment
	staged    map[string]bool
	published map[string]map[string]bool
}

// New makes a driver with every capability that it serves.
func New(name string) *Driver {
	return &Driver{
		Name: name, NodeID: "node-1",
		Plugin: []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE},
		Controller: []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
			csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
			csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		},
		Groups:  Groups{Offered: []csi.GroupControllerServiceCapability_RPC_Type{csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT}},
		Node:    []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME},
		volumes: map[string]*csi.Volume{}, attached: map[string]map[string]attachment{}, staged: map[string]bool{}, published: map[string]map[string]bool{},
	}
}

// Register adds the services to a server that was made with Intercept.
func (d *Driver) Register(server *grpc.Server) {
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterGroupControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	if d.Operations != nil {
		operations.RegisterOperationsServer(server, operationLister{driver: d})
	}
}

type operationLister struct {
	operations.UnimplementedOperationsServer
	driver *Driver
}

func (l operationLister) ListOperations(
	context.Context, *operations.ListOperationsRequest,
) (*operations.ListOperationsResponse, error) {
	return &operations.ListOperationsResponse{Operations: l.driver.Operations()}, nil
}

// Serve serves on a listener and returns what stops it, as a crash would.
func (d *Driver) Serve(listener net.Listener) (stop func()) { return d.serve(listener, d.Intercept) }

// ServeInstance is Serve for the instance of the driver on one node: see Instance.
func (d *Driver) ServeInstance(listener net.Listener, node string) (stop func()) {
	return d.serve(listener, d.Instance(node))
}

func (d *Driver) serve(listener net.Listener, intercept grpc.UnaryServerInterceptor) (stop func()) {
	server := grpc.NewServer(grpc.UnaryInterceptor(intercept))
	d.Register(server)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends with stop
	}()
	return func() {
		server.Stop()
		<-ended
	}
}

// Intercept counts a call and runs Before and After, which may change its outcome.
// A call whose context has ended has no effect, as over a connection.
func (d *Driver) Intercept(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	name := path.Base(info.FullMethod)
	d.mu.Lock()
	d.calls = append(d.calls, name)
	d.mu.Unlock()
	if d.Before != nil {
		if err := d.Before(ctx, name, request); err != nil {
			return nil, err
		}
	}
	answer, err := handler(ctx, request)
	if err == nil && d.After != nil {
		err = d.After(ctx, name, request)
	}
	if text := d.Warnings[name]; text != "" && err == nil {
		err = grpc.SetTrailer(ctx, metadata.MD{message.WarningTrailer: {text}})
	}
	return answer, err
}

type instanceKey struct{}

// Instance is Intercept for the instance of the driver on one node, where each node
// has its own storage. It creates, finds and deletes volumes of that node alone, and
// rejects requests for other nodes. TopologyKey of a request names the node.
func (d *Driver) Instance(node string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return d.Intercept(context.WithValue(ctx, instanceKey{}, node), request, info, handler)
	}
}

// TopologyKey is the key of the node in the topology of an Instance.
const TopologyKey = "node"

// instanceOf is the node of the instance that serves a call; "" for a driver whose
// storage is one.
func instanceOf(ctx context.Context) string {
	node, _ := ctx.Value(instanceKey{}).(string)
	return node
}

// Fail is an answer with a code, such as codes.Aborted.
func Fail(code codes.Code, text string) error { return status.Error(code, text) }

// Calls returns the names of the calls so far, without those that only ask.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asking := []string{"GetPluginInfo", "GetPluginCapabilities", "Probe", "ControllerGetCapabilities", "GroupControllerGetCapabilities", "NodeGetCapabilities", "NodeGetInfo"}
	return slices.DeleteFunc(slices.Clone(d.calls), func(name string) bool { return slices.Contains(asking, name) })
}

// Count returns how often a call was made.
func (d *Driver) Count(rpc string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(d.calls), func(name string) bool { return name != rpc }))
}

// Left describes the volumes in use, and counts all volumes.
func (d *Driver) Left() (volumes int, inUse []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.attached {
		inUse = append(inUse, "attached "+id)
	}
	for id := range d.staged {
		inUse = append(inUse, "staged "+id)
	}
	for id, targets := range d.published {
		for target := range targets {
			inUse = append(inUse, "published "+id+" at "+target)
		}
	}
	slices.Sort(inUse)
	return len(d.volumes), inUse
}

// Reboot forgets what is staged and published, as a machine that is restarted does. With
// detach, it forgets the attachments, too.
func (d *Driver) Reboot(detach bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.staged)
	clear(d.published)
	if detach {
		clear(d.attached)
	}
}

// GetPluginInfo is the RPC.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.Name, VendorVersion: "1"}, nil
}

// Probe is the RPC.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// GetPluginCapabilities is the RPC.
func (d *Driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{}
	for _, kind := range d.Plugin {
		answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}})
	}
	return answer, nil
}

// ControllerGetCapabilities is the RPC.
func (d *Driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range d.Controller {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}})
	}
	return answer, nil
}

// NodeGetCapabilities is the RPC.
func (d *Driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range d.Node {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}})
	}
	return answer, nil
}

// NodeGetInfo is the RPC.
func (d *Driver) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	answer := &csi.NodeGetInfoResponse{NodeId: cmp.Or(instanceOf(ctx), d.NodeID)}
	if node := instanceOf(ctx); node != "" {
		answer.AccessibleTopology = &csi.Topology{Segments: map[string]string{TopologyKey: node}}
	} else if d.Topology != nil {
		answer.AccessibleTopology = &csi.Topology{Segments: d.Topology}
	}
	return answer, nil
}

// DeleteVolume is the RPC.
func (d *Driver) DeleteVolume(
	ctx context.Context, request *csi.DeleteVolumeRequest,
) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if node := instanceOf(ctx); !onNode(request.GetVolumeId(), node) {
		return nil, status.Errorf(codes.InvalidArgument, "volume %s is not on node %s", request.GetVolumeId(), node)
	}
	if id := request.GetVolumeId(); d.staged[id] || len(d.published[id]) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use", id)
	}
	maps.DeleteFunc(d.volumes, func(_ string, v *csi.Volume) bool { return v.GetVolumeId() == request.GetVolumeId() })
	return &csi.DeleteVolumeResponse{}, nil
}

// NodeStageVolume is the RPC.
func (d *Driver) NodeStageVolume(
	_ context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.staged[request.GetVolumeId()] = true
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume is the RPC.
func (d *Driver) NodeUnstageVolume(
	_ context.Context, request *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if targets := d.published[request.GetVolumeId()]; len(targets) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "published at %v", targets)
	}
	if d.Forgetful && !d.staged[request.GetVolumeId()] {
		return nil, status.Errorf(codes.NotFound, "volume %s is not known", request.GetVolumeId())
	}
	delete(d.staged, request.GetVolumeId())
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume is the RPC.
func (d *Driver) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Publish != nil {
		if err := d.Publish(request); err != nil {
			return nil, err
		}
	}
	id := request.GetVolumeId()
	if d.published[id] == nil {
		d.published[id] = map[string]bool{}
	}
	d.published[id][request.GetTargetPath()] = true
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume is the RPC.
func (d *Driver) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Forgetful && !d.published[request.GetVolumeId()][request.GetTargetPath()] {
		return nil, status.Errorf(codes.NotFound, "volume %s is not known", request.GetVolumeId())
	}
	if d.Unpublish != nil {
		if err := d.Unpublish(request); err != nil {
			return nil, fmt.Errorf("unpublish: %w", err)
		}
	}
	delete(d.published[request.GetVolumeId()], request.GetTargetPath())
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume is the RPC.
func (d *Driver) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: request.GetCapacityRange().GetRequiredBytes()}, nil
}
