package csidriver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Capacity is how much room the driver says it has. The zero value says none.
type Capacity struct {
	// Of answers a request; nil means no capacity. Before can fail the call
	// instead.
	Of func(*csi.GetCapacityRequest) *csi.GetCapacityResponse

	asked []*csi.GetCapacityRequest
}

// Room is an answer to GetCapacity: so many bytes, in volumes of at most so
// many; largest below zero is left out.
func Room(available, largest int64) *csi.GetCapacityResponse {
	answer := &csi.GetCapacityResponse{AvailableCapacity: available}
	if largest >= 0 {
		answer.MaximumVolumeSize = wrapperspb.Int64(largest)
	}
	return answer
}

// CapacityRequests returns the GetCapacity requests so far.
func (d *Driver) CapacityRequests() []*csi.GetCapacityRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.Capacity.asked)
}

// GetCapacity is the RPC.
func (d *Driver) GetCapacity(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if copied, ok := proto.Clone(request).(*csi.GetCapacityRequest); ok {
		d.Capacity.asked = append(d.Capacity.asked, copied)
	}
	if d.Capacity.Of == nil {
		return &csi.GetCapacityResponse{}, nil
	}
	return d.Capacity.Of(request), nil
}
