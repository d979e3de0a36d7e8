package groups

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/volume/v1beta2"
)

// The calls up to v1beta2, which call a path path or mount and have texts for
// disks: those of all, those of v1beta1 and later, the one of v1beta2 alone.

func olderVolume() older[api.Volumes] {
	return older[api.Volumes]{proto: pb.File_internal_csiproxy_groups_volume_v1beta2_api_proto, newer: targetCalls()}
}

func pathCalls() []call[api.Volumes] {
	path := convert.Names{"path": "target_path"}
	return append(olderVolume().same("IsVolumeFormatted", "FormatVolume"),
		olderVolume().call("ListVolumesOnDisk", "ListVolumesOnDisk", convert.Names{"disk_id": "disk_number"}),
		olderVolume().call("MountVolume", "MountVolume", path),
		olderVolume().call("DismountVolume", "UnmountVolume", path),
		olderVolume().call("ResizeVolume", "ResizeVolume", convert.Names{"size": "size_bytes"}),
	)
}

func pathStatsCalls() []call[api.Volumes] {
	sizes := convert.Names{"volumeSize": "total_bytes", "volumeUsedSize": "used_bytes"}
	return []call[api.Volumes]{
		olderVolume().call("VolumeStats", "GetVolumeStats", sizes),
		olderVolume().call("GetVolumeDiskNumber", "GetDiskNumberFromVolumeID", convert.Names{"diskNumber": "disk_number"}),
		olderVolume().call("GetVolumeIDFromMount", "GetVolumeIDFromTargetPath", convert.Names{"mount": "target_path"}),
	}
}

func pathCacheCalls() []call[api.Volumes] { return olderVolume().same("WriteVolumeCache") }
