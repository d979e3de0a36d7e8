package groups

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1"
)

// numberCalls are the calls of v1beta3 and later, in which a disk's number is a number.
func numberCalls() []call[api.Disks] {
	return []call[api.Disks]{
		unary("ListDiskLocations", listDiskLocations),
		unary("PartitionDisk", partitionDisk),
		unary("Rescan", rescan),
		unary("ListDiskIDs", listDiskIDs),
		unary("GetDiskStats", getDiskStats),
		unary("SetDiskState", setDiskState),
		unary("GetDiskState", getDiskState),
	}
}

func listDiskLocations(
	ctx context.Context, disks api.Disks, _ *pb.ListDiskLocationsRequest,
) (*pb.ListDiskLocationsResponse, error) {
	list, err := disks.List(ctx)
	return &pb.ListDiskLocationsResponse{DiskLocations: locationsByNumber(list)}, err
}

func partitionDisk(
	ctx context.Context, disks api.Disks, req *pb.PartitionDiskRequest,
) (*pb.PartitionDiskResponse, error) {
	_, err := disks.Partition(ctx, req.GetDiskNumber(), api.Identity{})
	return &pb.PartitionDiskResponse{}, err
}

func rescan(ctx context.Context, disks api.Disks, _ *pb.RescanRequest) (*pb.RescanResponse, error) {
	return &pb.RescanResponse{}, disks.Rescan(ctx)
}

func listDiskIDs(ctx context.Context, disks api.Disks, _ *pb.ListDiskIDsRequest) (*pb.ListDiskIDsResponse, error) {
	list, err := disks.List(ctx)
	return &pb.ListDiskIDsResponse{DiskIDs: idsByNumber(list)}, err
}

func getDiskStats(ctx context.Context, disks api.Disks, req *pb.GetDiskStatsRequest) (*pb.GetDiskStatsResponse, error) {
	size, err := disks.Size(ctx, req.GetDiskNumber())
	return &pb.GetDiskStatsResponse{TotalBytes: size}, err
}

func setDiskState(ctx context.Context, disks api.Disks, req *pb.SetDiskStateRequest) (*pb.SetDiskStateResponse, error) {
	return &pb.SetDiskStateResponse{}, disks.SetOnline(ctx, req.GetDiskNumber(), api.Identity{}, req.GetIsOnline())
}

func getDiskState(ctx context.Context, disks api.Disks, req *pb.GetDiskStateRequest) (*pb.GetDiskStateResponse, error) {
	online, err := disks.Online(ctx, req.GetDiskNumber())
	return &pb.GetDiskStateResponse{IsOnline: online}, err
}

// locationsByNumber leaves out disks that have no SCSI address.
func locationsByNumber(disks []api.Disk) map[uint32]*pb.DiskLocation {
	locations := make(map[uint32]*pb.DiskLocation)
	for _, disk := range disks {
		if at := disk.Location; at != nil {
			locations[disk.Number] = &pb.DiskLocation{Adapter: at.Adapter, Bus: at.Bus, Target: at.Target, LUNID: at.LUN}
		}
	}
	return locations
}

// idsByNumber leaves out disks that could not be read: their IDs are unknown, and one such
// disk must not hide the others.
func idsByNumber(disks []api.Disk) map[uint32]*pb.DiskIDs {
	ids := make(map[uint32]*pb.DiskIDs)
	for _, disk := range disks {
		if disk.Problem == nil {
			ids[disk.Number] = &pb.DiskIDs{
				Page83: validText(disk.Page83), SerialNumber: validText(disk.SerialNumber),
			}
		}
	}
	return ids
}
