package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node"
)

func stageRequest() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: "/staging", VolumeCapability: mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "noatime"),
		PublishContext: map[string]string{"p": "1"}, VolumeContext: map[string]string{"v": "2"}, Secrets: map[string]string{"s": "3"},
	}
}

func TestNode_translatesEverything(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	ctx := t.Context()
	capability := backend.Capability{Mode: backend.SingleNodeWriter, FSType: "ext4", MountFlags: []string{"noatime"}}

	_, err := i.NodeStageVolume(ctx, stageRequest())
	wantCode(t, err, codes.OK)
	same(t, i.engine.staged, node.StageRequest{
		VolumeID: "vol-1", StagingPath: "/staging", Capability: capability,
		PublishContext: map[string]string{"p": "1"}, VolumeContext: map[string]string{"v": "2"},
	})

	_, err = i.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: "/staging", TargetPath: "/target", Readonly: true,
		VolumeCapability: mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "noatime"),
		PublishContext:   map[string]string{"p": "1"}, VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true"},
	})
	wantCode(t, err, codes.OK)
	same(t, i.engine.published, node.PublishRequest{
		VolumeID: "vol-1", StagingPath: "/staging", TargetPath: "/target", Capability: capability, ReadOnly: true,
		PublishContext: map[string]string{"p": "1"}, VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true"},
	})

	grown, err := i.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: "vol-1", VolumePath: "/target", StagingTargetPath: "/staging",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 5, LimitBytes: 6}, VolumeCapability: raw(),
	})
	wantCode(t, err, codes.OK)
	same(t, grown, &csi.NodeExpandVolumeResponse{CapacityBytes: 7 << 30})
	same(t, i.engine.expanded, node.ExpandRequest{
		VolumeID: "vol-1", VolumePath: "/target", StagingPath: "/staging", Range: backend.SizeRange{Required: 5, Limit: 6},
		Capability: &backend.Capability{Mode: backend.SingleNodeWriter, Block: true},
	})
	_, err = i.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: "/target"})
	wantCode(t, err, codes.OK)
	same(t, i.engine.expanded, node.ExpandRequest{VolumeID: "vol-1", VolumePath: "/target"})

	_, err = i.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/target"})
	wantCode(t, err, codes.OK)
	_, err = i.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/staging"})
	wantCode(t, err, codes.OK)
	same(t, [][2]string{i.engine.unwanted, i.engine.unstaged}, [][2]string{{"vol-1", "/target"}, {"vol-1", "/staging"}})
}

func TestNodeGetInfo_reportsIDTopologyAndLimit(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	info, err := i.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	wantCode(t, err, codes.OK)
	same(t, info, &csi.NodeGetInfoResponse{
		NodeId: "n1", MaxVolumesPerNode: 16,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"memory.test/node": "n1"}},
	})
}

func TestNodeGetVolumeStats_ofFilesystemAndBlock(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	stats, err := i.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: "/fs"})
	wantCode(t, err, codes.OK)
	same(t, stats.GetUsage(), []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 100, Used: 60, Available: 30},
		{Unit: csi.VolumeUsage_INODES, Total: 10, Used: 1, Available: 9},
	})
	stats, err = i.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: "/block"})
	wantCode(t, err, codes.OK)
	same(t, stats.GetUsage(), []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 100}})
}

func TestNode_refusesAMountGroupItDidNotAnnounce(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	request := stageRequest()
	request.GetVolumeCapability().GetMount().VolumeMountGroup = "1000"
	_, err := i.NodeStageVolume(t.Context(), request)
	wantCode(t, err, codes.InvalidArgument)
	if i.engine.staged.VolumeID != "" {
		t.Error("the engine was called all the same")
	}
}

func TestNode_refusesAnAccessModeThatNoVolumeHas(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	const mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	request := stageRequest()
	request.VolumeCapability = mounted(mode)
	_, err := i.NodeStageVolume(t.Context(), request)
	wantCode(t, err, codes.FailedPrecondition)
	_, err = i.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: "/staging", TargetPath: "/target", VolumeCapability: mounted(mode),
	})
	wantCode(t, err, codes.FailedPrecondition)
	if i.engine.staged.VolumeID != "" || i.engine.published.VolumeID != "" {
		t.Error("the engine was called all the same")
	}
}

func TestNode_pathsOfTheSystemsLength(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	request := &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/" + strings.Repeat("d", 4094)}
	_, err := i.NodeUnpublishVolume(t.Context(), request)
	wantCode(t, err, codes.OK)
	request.TargetPath += "d"
	_, err = i.NodeUnpublishVolume(t.Context(), request)
	wantCode(t, err, codes.InvalidArgument)
}

func TestNode_noVolumeIsAtARelativePath(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	_, err := i.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: "some/path"})
	wantCode(t, err, codes.NotFound)
	_, err = i.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: "some/path"})
	wantCode(t, err, codes.NotFound)
}

func TestNode_errorsOfTheEngineHaveTheirCodes(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	i.engine.fail = fmt.Errorf("volume vol-1 has a foreign filesystem: %w", backend.ErrPrecondition)
	_, err := i.NodeStageVolume(t.Context(), stageRequest())
	wantCode(t, err, codes.FailedPrecondition)
}

func TestNodeCapabilities_followTheBackend(t *testing.T) {
	names := func(i *instance) string {
		response, err := i.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, capability := range response.GetCapabilities() {
			list = append(list, capability.GetRpc().GetType().String())
		}
		return strings.Join(list, " ")
	}
	always := "STAGE_UNSTAGE_VOLUME GET_VOLUME_STATS GET_VOLUME_HEALTH GET_STORAGE_HEALTH"
	if got, want := names(start(t, Node, memory{newPlain()})), always+" EXPAND_VOLUME SINGLE_NODE_MULTI_WRITER"; got != want {
		t.Errorf("the capabilities are %s, want %s", got, want)
	}
	fixed := start(t, Node, newPlain())
	if got, want := names(fixed), always+" SINGLE_NODE_MULTI_WRITER"; got != want {
		t.Errorf("the capabilities are %s, want %s", got, want)
	}
	_, err := fixed.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: "/p"})
	wantCode(t, err, codes.Unimplemented)
}

func TestNodeHealth_ofVolumeAndStorage(t *testing.T) {
	i := start(t, Node, memory{newPlain()})
	i.engine.problems = []backend.HealthProblem{
		{Kind: backend.HealthDegraded, Reason: "DirectIOUnavailable", Message: strings.Repeat("ä", 600)},
		{Kind: backend.HealthInaccessible, Reason: "PoolMissing"},
	}
	volume, err := i.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "vol-1"})
	wantCode(t, err, codes.OK)
	short := strings.Repeat("ä", 512)
	same(t, volume.GetVolumeHealth(), &csi.VolumeHealth{VolumeId: "vol-1", HealthStatuses: []*csi.VolumeHealth_VolumeHealthEntry{
		{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: "DirectIOUnavailable", Message: short},
		{Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: "PoolMissing"},
	}})
	storage, err := i.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	wantCode(t, err, codes.OK)
	same(t, storage.GetBackendHealth(), []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{
		{Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "DirectIOUnavailable", Message: short},
		{Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "PoolMissing"},
	})
	i.engine.problems = nil
	for n := range 20 {
		i.engine.problems = append(i.engine.problems, backend.HealthProblem{Kind: backend.HealthDegraded, Reason: fmt.Sprint("Reason", n)})
	}
	storage, err = i.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	if err != nil || len(storage.GetBackendHealth()) != 16 {
		t.Errorf("%d conditions (%v); Kubernetes takes 16", len(storage.GetBackendHealth()), err)
	}
}
