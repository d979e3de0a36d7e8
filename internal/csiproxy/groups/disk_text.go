package groups

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1beta2"
)

// The calls up to v1beta2, in which a disk's number is a text: those of all, those
// of v1beta1 and later, those of v1beta2, and the one of v1alpha1 alone.

func textCalls() []call[api.Disks] {
	return []call[api.Disks]{
		unary("ListDiskLocations", listDiskLocationsByText),
		unary("PartitionDisk", partitionDiskByText),
		unary("Rescan", rescanBeforeNumbers),
	}
}

func textIDCalls() []call[api.Disks] {
	return []call[api.Disks]{
		unary("ListDiskIDs", listDiskIDsByText),
		unary("DiskStats", diskStats),
	}
}

func textStateCalls() []call[api.Disks] {
	return []call[api.Disks]{
		unary("SetAttachState", setAttachState),
		unary("GetAttachState", getAttachState),
	}
}

func textNameCalls() []call[api.Disks] {
	return []call[api.Disks]{unary("GetDiskNumberByName", getDiskNumberByName)}
}

// The keys of DiskIDs.identifiers.
const (
	page83Key       = "page83"
	serialNumberKey = "serialNumber"
)

func listDiskLocationsByText(ctx context.Context, disks api.Disks, _ *pb.ListDiskLocationsRequest) (*pb.ListDiskLocationsResponse, error) {
	list, err := disks.List(ctx)
	return &pb.ListDiskLocationsResponse{DiskLocations: locationsByText(list)}, err
}

func partitionDiskByText(ctx context.Context, disks api.Disks, req *pb.PartitionDiskRequest) (*pb.PartitionDiskResponse, error) {
	number, err := diskNumber("diskID", req.GetDiskID())
	if err != nil {
		return nil, err
	}
	_, err = disks.Partition(ctx, number, api.Identity{})
	return &pb.PartitionDiskResponse{}, err
}

func rescanBeforeNumbers(ctx context.Context, disks api.Disks, _ *pb.RescanRequest) (*pb.RescanResponse, error) {
	return &pb.RescanResponse{}, disks.Rescan(ctx)
}

func listDiskIDsByText(ctx context.Context, disks api.Disks, _ *pb.ListDiskIDsRequest) (*pb.ListDiskIDsResponse, error) {
	list, err := disks.List(ctx)
	return &pb.ListDiskIDsResponse{DiskIDs: idsByText(list)}, err
}

func diskStats(ctx context.Context, disks api.Disks, req *pb.DiskStatsRequest) (*pb.DiskStatsResponse, error) {
	number, err := diskNumber("diskID", req.GetDiskID())
	if err != nil {
		return nil, err
	}
	size, err := disks.Size(ctx, number)
	return &pb.DiskStatsResponse{DiskSize: size}, err
}

func setAttachState(ctx context.Context, disks api.Disks, req *pb.SetAttachStateRequest) (*pb.SetAttachStateResponse, error) {
	number, err := diskNumber("diskID", req.GetDiskID())
	if err != nil {
		return nil, err
	}
	return &pb.SetAttachStateResponse{}, disks.SetOnline(ctx, number, api.Identity{}, req.GetIsOnline())
}

func getAttachState(ctx context.Context, disks api.Disks, req *pb.GetAttachStateRequest) (*pb.GetAttachStateResponse, error) {
	number, err := diskNumber("diskID", req.GetDiskID())
	if err != nil {
		return nil, err
	}
	online, err := disks.Online(ctx, number)
	return &pb.GetAttachStateResponse{IsOnline: online}, err
}

func getDiskNumberByName(ctx context.Context, disks api.Disks, req *pb.GetDiskNumberByNameRequest) (*pb.GetDiskNumberByNameResponse, error) {
	if req.GetDiskName() == "" { // which would be that of disks without an identifier
		return nil, fmt.Errorf("disk_name: %w: it is empty", backend.ErrInvalid)
	}
	list, err := disks.List(ctx)
	if err != nil {
		return nil, err
	}
	number, err := numberOf(list, req.GetDiskName())
	return &pb.GetDiskNumberByNameResponse{DiskNumber: diskText(number)}, err
}

// numberOf finds the one disk whose page83 identifier is name.
func numberOf(disks []api.Disk, name string) (uint32, error) {
	var found []uint32
	for _, disk := range disks {
		if disk.Problem == nil && disk.Page83 == name {
			found = append(found, disk.Number)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("disk_name %.80q: %w: no disk has this page83 identifier", name, backend.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("disk_name %.80q: %w: disks %d have this page83 identifier", name, backend.ErrPrecondition, found)
}

func locationsByText(disks []api.Disk) map[string]*pb.DiskLocation {
	locations := make(map[string]*pb.DiskLocation)
	for number, at := range locationsByNumber(disks) {
		locations[diskText(number)] = &pb.DiskLocation{
			Adapter: at.GetAdapter(), Bus: at.GetBus(), Target: at.GetTarget(), LUNID: at.GetLUNID(),
		}
	}
	return locations
}

func idsByText(disks []api.Disk) map[string]*pb.DiskIDs {
	ids := make(map[string]*pb.DiskIDs)
	for number, of := range idsByNumber(disks) {
		ids[diskText(number)] = &pb.DiskIDs{Identifiers: map[string]string{
			page83Key: of.GetPage83(), serialNumberKey: of.GetSerialNumber(),
		}}
	}
	return ids
}
