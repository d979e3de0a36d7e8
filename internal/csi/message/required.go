package message

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// requiredFields lists the fields that comments of csi.proto 1.13 mark "This field is
// REQUIRED"; descriptors do not carry comments. Booleans and numbers are left out,
// since their absence is a value, and so are the fields of messages that only responses
// use.
func requiredFields(message protoreflect.FullName) []protoreflect.Name {
	switch message {
	case "csi.v1.CreateVolumeRequest":
		return names("name", "volume_capabilities")
	case "csi.v1.DeleteVolumeRequest", "csi.v1.ControllerUnpublishVolumeRequest",
		"csi.v1.ControllerGetVolumeRequest", "csi.v1.ControllerGetVolumeHealthRequest",
		"csi.v1.NodeGetVolumeHealthRequest", "csi.v1.VolumeContentSource.VolumeSource":
		return names("volume_id")
	case "csi.v1.ControllerPublishVolumeRequest":
		return names("volume_id", "node_id", "volume_capability")
	case "csi.v1.ValidateVolumeCapabilitiesRequest":
		return names("volume_id", "volume_capabilities")
	case "csi.v1.ControllerModifyVolumeRequest":
		// Not mutable_parameters, although it is marked REQUIRED: csi-sanity 5.6.0
		// calls without, and nothing changes then.
		return names("volume_id")
	case "csi.v1.ControllerExpandVolumeRequest":
		return names("volume_id", "capacity_range")
	case "csi.v1.CreateSnapshotRequest":
		return names("source_volume_id", "name")
	case "csi.v1.DeleteSnapshotRequest", "csi.v1.GetSnapshotRequest", "csi.v1.VolumeContentSource.SnapshotSource":
		return names("snapshot_id")
	case "csi.v1.CreateVolumeGroupSnapshotRequest":
		return names("name", "source_volume_ids")
	case "csi.v1.DeleteVolumeGroupSnapshotRequest", "csi.v1.GetVolumeGroupSnapshotRequest":
		// Not snapshot_ids, although it is marked REQUIRED: the backend knows the
		// members, csi-sanity 5.6.0 calls without, and given ones are compared.
		return names("group_snapshot_id")
	case "csi.v1.GetMetadataAllocatedRequest":
		return names("snapshot_id")
	case "csi.v1.GetMetadataDeltaRequest":
		return names("base_snapshot_id", "target_snapshot_id")
	case "csi.v1.NodeStageVolumeRequest":
		return names("volume_id", "staging_target_path", "volume_capability")
	case "csi.v1.NodeUnstageVolumeRequest":
		return names("volume_id", "staging_target_path")
	case "csi.v1.NodePublishVolumeRequest":
		return names("volume_id", "target_path", "volume_capability")
	case "csi.v1.NodeUnpublishVolumeRequest":
		return names("volume_id", "target_path")
	case "csi.v1.NodeGetVolumeStatsRequest", "csi.v1.NodeExpandVolumeRequest":
		return names("volume_id", "volume_path")
	case "csi.v1.VolumeCapability":
		return names("access_mode")
	case "csi.v1.VolumeCapability.AccessMode":
		return names("mode")
	}
	return nil
}

// requiredChoice lists fields of which at least one must be set: the members
// of a mandatory oneof, or a rule in a comment of csi.proto.
func requiredChoice(message protoreflect.FullName) []protoreflect.Name {
	switch message {
	case "csi.v1.VolumeCapability":
		return names("block", "mount")
	case "csi.v1.VolumeContentSource":
		return names("snapshot", "volume")
	case "csi.v1.CapacityRange":
		return names("required_bytes", "limit_bytes")
	case "csi.v1.TopologyRequirement":
		return names("requisite", "preferred")
	}
	return nil
}

func names(list ...protoreflect.Name) []protoreflect.Name { return list }

func hasAny(message protoreflect.Message, fields []protoreflect.Name) bool {
	for _, name := range fields {
		if message.Has(message.Descriptor().Fields().ByName(name)) {
			return true
		}
	}
	return false
}

func joinNames(list []protoreflect.Name) string {
	texts := make([]string, len(list))
	for i, name := range list {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// join names a field below a message; the request itself has the path "".
func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

func orRequest(path string) string {
	if path == "" {
		return "the request"
	}
	return path
}
