package groups

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1beta2"
)

// The calls up to v1beta2, in which a disk's number is a text: those of all versions,
// those of v1beta1 and later, those of v1beta2, and the one of v1alpha1.

func olderDisk() older[api.Disks] {
	return older[api.Disks]{proto: pb.File_internal_csiproxy_groups_disk_v1beta2_api_proto, newer: numberCalls()}
}

func textCalls() []call[api.Disks] {
	calls := olderDisk().same("ListDiskLocations", "Rescan")
	return append(calls, olderDisk().call("PartitionDisk", "PartitionDisk", convert.Names{"diskID": "disk_number"}))
}

func textIDCalls() []call[api.Disks] {
	return []call[api.Disks]{
		unary("ListDiskIDs", listDiskIDsByText),
		olderDisk().call("DiskStats", "GetDiskStats", convert.Names{"diskID": "disk_number", "diskSize": "total_bytes"}),
	}
}

func textStateCalls() []call[api.Disks] {
	names := convert.Names{"diskID": "disk_number", "isOnline": "is_online"}
	return []call[api.Disks]{
		olderDisk().call("SetAttachState", "SetDiskState", names),
		olderDisk().call("GetAttachState", "GetDiskState", names),
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

func listDiskIDsByText(
	ctx context.Context, disks api.Disks, _ *pb.ListDiskIDsRequest,
) (*pb.ListDiskIDsResponse, error) {
	list, err := disks.List(ctx)
	return &pb.ListDiskIDsResponse{DiskIDs: idsByText(list)}, err
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

func getDiskNumberByName(
	ctx context.Context, disks api.Disks, req *pb.GetDiskNumberByNameRequest,
) (*pb.GetDiskNumberByNameResponse, error) {
	if req.GetDiskName() == "" { // which would match disks without an identifier
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
