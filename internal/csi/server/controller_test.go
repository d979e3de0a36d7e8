package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csi/message"
)

func mounted(mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4", MountFlags: flags}},
	}
}

func raw() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

func single() []*csi.VolumeCapability {
	return []*csi.VolumeCapability{mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
}

func (i *instance) mustCreate(t *testing.T, name string) *csi.Volume {
	t.Helper()
	response, err := i.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: single()})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetVolume()
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if difference := cmp.Diff(want, got, protocmp.Transform()); difference != "" {
		t.Errorf("the answer differs (-want +got):\n%s", difference)
	}
}

func TestCreateVolume_translatesEverything(t *testing.T) {
	plain := newPlain()
	i := start(t, Controller, memory{plain})
	source := i.mustCreate(t, "source")
	here := &csi.Topology{Segments: map[string]string{"memory.test/node": "n1"}}
	content := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source.GetVolumeId()},
	}}
	response, err := i.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "clone", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30, LimitBytes: 3 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, "noatime"), raw()},
		Parameters: map[string]string{
			"kind": "fine", "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pv-1",
		},
		MutableParameters: map[string]string{"speed": "high"}, Secrets: map[string]string{"token": "t"},
		VolumeContentSource:       content,
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{here}, Preferred: []*csi.Topology{here}},
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, response.GetVolume(), &csi.Volume{
		VolumeId: "vol-clone", CapacityBytes: 2 << 30, VolumeContext: map[string]string{"made": "here"},
		ContentSource: content, AccessibleTopology: []*csi.Topology{here},
	})
	segment := []backend.Topology{{"memory.test/node": "n1"}}
	same(t, plain.last, backend.VolumeSpec{
		Name: "clone", Size: 2 << 30, Parameters: map[string]string{"kind": "fine"},
		MutableParameters: map[string]string{"speed": "high"}, Secrets: map[string]string{"token": "t"},
		Source: backend.Source{VolumeID: source.GetVolumeId()},
		Capabilities: []backend.Capability{
			{Mode: backend.SingleNodeMultiWriter, FSType: "ext4", MountFlags: []string{"noatime"}},
			{Mode: backend.SingleNodeWriter, Block: true},
		},
		Topology: &backend.TopologyRequirement{Requisite: segment, Preferred: segment},
		Metadata: map[string]string{
			"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pv-1",
		},
	})
}

func TestCreateVolume_refusals(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	cases := []struct {
		name    string
		corrupt func(*csi.CreateVolumeRequest)
		code    codes.Code
	}{
		{"no name", func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument},
		{"name with an escape character", func(r *csi.CreateVolumeRequest) { r.Name = "a\x1b" }, codes.InvalidArgument},
		{"name of 129 bytes", func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("x", 129) }, codes.InvalidArgument},
		{"no capability", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument},
		{"unknown access mode", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode.Mode = 99 }, codes.InvalidArgument},
		{"impossible access mode", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument},
		{"unknown filesystem", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = "fat" }, codes.InvalidArgument},
		{"unknown parameter", func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"colour": "red"} }, codes.InvalidArgument},
		{"unknown key of Kubernetes", func(r *csi.CreateVolumeRequest) {
			r.Parameters = map[string]string{"csi.storage.k8s.io/other": "x"}
		}, codes.InvalidArgument},
		{"negative size", func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: -1} }, codes.InvalidArgument},
		{"size too large", func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: 1 << 50} }, codes.OutOfRange},
		{"source that is not there", func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = fromSource(backend.Source{SnapshotID: "snap-none"})
		}, codes.NotFound},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			request := &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: single()}
			c.corrupt(request)
			_, err := i.CreateVolume(t.Context(), request)
			wantCode(t, err, c.code)
		})
	}
	list, err := i.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) > 0 {
		t.Errorf("refused creations left %v (%v)", list, err)
	}
}

func TestCreateVolume_refusesFieldsWithoutTheirCapability(t *testing.T) {
	i := start(t, Controller, unplaced{newPlain()})
	_, err := i.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: single(), MutableParameters: map[string]string{"speed": "high"},
	})
	wantCode(t, err, codes.InvalidArgument)
	_, err = i.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: single(),
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"a": "b"}}}},
	})
	wantCode(t, err, codes.InvalidArgument)
}

// unplaced is a plain backend whose volumes can be reached from everywhere.
type unplaced struct{ *plain }

func (u unplaced) Traits() backend.Traits {
	traits := u.plain.Traits()
	traits.TopologyKeys = nil
	return traits
}

func TestController_whatTheBackendDoesNotOfferIsUnimplemented(t *testing.T) {
	i := start(t, Controller, newPlain())
	ctx := t.Context()
	calls := map[string]error{}
	_, calls["snapshot"] = i.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v"})
	_, calls["unsnapshot"] = i.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: "s"})
	_, calls["list"] = i.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	_, calls["get"] = i.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: "s"})
	_, calls["expand"] = i.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
	_, calls["modify"] = i.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: "v", MutableParameters: map[string]string{"a": "b"}})
	_, calls["capacity"] = i.GetCapacity(ctx, &csi.GetCapacityRequest{})
	_, calls["health"] = i.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: "v"})
	_, calls["unhealthy"] = i.ControllerListVolumeHealth(ctx, &csi.ControllerListVolumeHealthRequest{})
	_, calls["attach"] = i.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n", VolumeCapability: raw()})
	_, calls["detach"] = i.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"})
	_, calls["group"] = i.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v"}})
	for name, err := range calls {
		t.Run(name, func(t *testing.T) { wantCode(t, err, codes.Unimplemented) })
	}
	capabilities, err := i.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var announced []string
	for _, capability := range capabilities.GetCapabilities() {
		announced = append(announced, capability.GetRpc().GetType().String())
	}
	same(t, announced, []string{"CREATE_DELETE_VOLUME", "LIST_VOLUMES", "GET_VOLUME", "CLONE_VOLUME", "SINGLE_NODE_MULTI_WRITER"})
}

func TestListVolumes_pages(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	for n := range 5 {
		i.mustCreate(t, fmt.Sprint("v", n))
	}
	var seen []string
	token := ""
	for {
		page, err := i.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.GetEntries() {
			seen = append(seen, entry.GetVolume().GetVolumeId())
		}
		if token = page.GetNextToken(); token == "" {
			break
		}
	}
	same(t, seen, []string{"vol-v0", "vol-v1", "vol-v2", "vol-v3", "vol-v4"})
	_, err := i.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "bogus"})
	wantCode(t, err, codes.Aborted)
}

func TestValidate_confirmsByEcho(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	volume := i.mustCreate(t, "v")
	context := map[string]string{"made": "here", "storage.kubernetes.io/csiProvisionerIdentity": "1234"}
	response, err := i.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: volume.GetVolumeId(), VolumeCapabilities: single(), VolumeContext: context,
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, response, &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: context, VolumeCapabilities: single(),
	}})
}

func TestValidate_namesTheMismatch(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	volume := i.mustCreate(t, "v")
	cases := map[string]*csi.ValidateVolumeCapabilitiesRequest{
		"access_mode":  {VolumeCapabilities: []*csi.VolumeCapability{mounted(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}},
		"is not known": {VolumeCapabilities: []*csi.VolumeCapability{mounted(77)}},
		"kind":         {VolumeCapabilities: single(), Parameters: map[string]string{"kind": "other"}},
		"speed":        {VolumeCapabilities: single(), MutableParameters: map[string]string{"speed": "low"}},
		"made":         {VolumeCapabilities: single(), VolumeContext: map[string]string{"made": "elsewhere"}},
	}
	for want, request := range cases {
		request.VolumeId = volume.GetVolumeId()
		response, err := i.ValidateVolumeCapabilities(t.Context(), request)
		if err != nil || response.GetConfirmed() != nil || !strings.Contains(response.GetMessage(), want) {
			t.Errorf("the answer is %v, %v; want no confirmation and a message about %q", response, err, want)
		}
	}
	_, err := i.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "none", VolumeCapabilities: single()})
	wantCode(t, err, codes.NotFound)
}

func TestVolume_expandModifyGetDelete(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	ctx, id := t.Context(), i.mustCreate(t, "v").GetVolumeId()
	grown, err := i.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 << 30}})
	wantCode(t, err, codes.OK)
	same(t, grown, &csi.ControllerExpandVolumeResponse{CapacityBytes: 4 << 30, NodeExpansionRequired: true})
	_, err = i.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"speed": "low"}})
	wantCode(t, err, codes.OK)
	_, err = i.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"kind": "x"}})
	wantCode(t, err, codes.InvalidArgument)
	got, err := i.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
	if err != nil || got.GetVolume().GetCapacityBytes() != 4<<30 || got.GetStatus() == nil {
		t.Errorf("the volume is %v, %v", got, err)
	}
	for range 2 {
		_, err = i.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		wantCode(t, err, codes.OK)
	}
	_, err = i.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
	wantCode(t, err, codes.NotFound)
}

func TestGetCapacity_omitsUnknownFields(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	capacity, err := i.GetCapacity(t.Context(), &csi.GetCapacityRequest{VolumeCapabilities: single()})
	if err != nil {
		t.Fatal(err)
	}
	same(t, capacity, &csi.GetCapacityResponse{AvailableCapacity: 5 << 30, MaximumVolumeSize: wrapperspb.Int64(3 << 30)})
}

func TestSnapshots_cutListRestoreDelete(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	ctx, id := t.Context(), i.mustCreate(t, "v").GetVolumeId()
	request := &csi.CreateSnapshotRequest{
		Name: "s", SourceVolumeId: id, Parameters: map[string]string{"csi.storage.k8s.io/volumesnapshot/name": "nightly"},
	}
	created, err := i.CreateSnapshot(ctx, request)
	wantCode(t, err, codes.OK)
	same(t, created.GetSnapshot(), &csi.Snapshot{
		SnapshotId: "snap-s", SourceVolumeId: id, SizeBytes: 1 << 30, ReadyToUse: true, CreationTime: timestamppb.New(createdAt),
	})
	got, err := i.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: "snap-s"})
	wantCode(t, err, codes.OK)
	same(t, got.GetSnapshot(), created.GetSnapshot())
	for filter, want := range map[*csi.ListSnapshotsRequest]int{
		{}: 1, {SnapshotId: "snap-s"}: 1, {SnapshotId: "none"}: 0, {SourceVolumeId: id}: 1, {SourceVolumeId: "none"}: 0,
	} {
		list, err := i.ListSnapshots(ctx, filter)
		if err != nil || len(list.GetEntries()) != want {
			t.Errorf("the list for %v is %v, %v; want %d", filter, list, err, want)
		}
	}
	restored, err := i.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "r", VolumeCapabilities: single(), VolumeContentSource: fromSource(backend.Source{SnapshotID: "snap-s"}),
	})
	wantCode(t, err, codes.OK)
	same(t, restored.GetVolume().GetContentSource(), fromSource(backend.Source{SnapshotID: "snap-s"}))
	request.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"a": "b"}}}}
	_, err = i.CreateSnapshot(ctx, request)
	wantCode(t, err, codes.InvalidArgument)
	_, err = i.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: "snap-s"})
	wantCode(t, err, codes.OK)
}

// localSnapshots is a backend whose snapshots can be restored on their node only.
type localSnapshots struct{ memory }

func (l localSnapshots) Traits() backend.Traits {
	traits := l.memory.Traits()
	traits.SnapshotTopology = true
	return traits
}

func (l localSnapshots) CreateSnapshot(ctx context.Context, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	snapshot, err := l.memory.CreateSnapshot(ctx, spec)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.Topology = spec.Topology
	snapshot.Topology = []backend.Topology{{"memory.test/node": "n1"}}
	l.snapshots[snapshot.ID] = snapshot
	return snapshot, err
}

func TestSnapshots_withATopology(t *testing.T) {
	store := newPlain()
	i := start(t, Controller, localSnapshots{memory{store}})
	ctx, id := t.Context(), i.mustCreate(t, "v").GetVolumeId()
	plugin, err := i.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil || !slices.ContainsFunc(plugin.GetCapabilities(), func(c *csi.PluginCapability) bool {
		return c.GetService().GetType() == csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS
	}) {
		t.Errorf("capabilities %v, %v", plugin, err)
	}
	here := []*csi.Topology{{Segments: map[string]string{"memory.test/node": "n1"}}}
	request := &csi.CreateSnapshotRequest{
		Name: "s", SourceVolumeId: id, AccessibilityRequirements: &csi.TopologyRequirement{Requisite: here},
	}
	created, err := i.CreateSnapshot(ctx, request)
	wantCode(t, err, codes.OK)
	same(t, created.GetSnapshot(), &csi.Snapshot{
		SnapshotId: "snap-s", SourceVolumeId: id, SizeBytes: 1 << 30, ReadyToUse: true, CreationTime: timestamppb.New(createdAt),
		AccessibleTopology: here,
	})
	if got := store.last.Topology.Requisite; len(got) != 1 || got[0]["memory.test/node"] != "n1" {
		t.Errorf("the backend is asked for %v", got)
	}
	request.AccessibilityRequirements.Requisite = []*csi.Topology{{Segments: map[string]string{"memory.test/node": "n2"}}}
	_, err = i.CreateSnapshot(ctx, request)
	wantCode(t, err, codes.AlreadyExists)
}

func TestGroups_cutGetDelete(t *testing.T) {
	i := start(t, Controller, memory{newPlain()})
	ctx, first, second := t.Context(), i.mustCreate(t, "a").GetVolumeId(), i.mustCreate(t, "b").GetVolumeId()
	created, err := i.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
		Name: "g", SourceVolumeIds: []string{first, second},
		Parameters: map[string]string{"csi.storage.k8s.io/volumegroupsnapshot/name": "nightly"},
	})
	if err != nil {
		t.Fatal(err)
	}
	group := created.GetGroupSnapshot()
	members := map[string]string{}
	for _, member := range group.GetSnapshots() {
		if member.GetGroupSnapshotId() != group.GetGroupSnapshotId() || !member.GetReadyToUse() {
			t.Errorf("the member %v is not one of %s", member, group.GetGroupSnapshotId())
		}
		members[member.GetSourceVolumeId()] = member.GetSnapshotId()
	}
	if len(members) != 2 || !group.GetReadyToUse() || !group.GetCreationTime().AsTime().Equal(createdAt) {
		t.Errorf("the group is %v", group)
	}
	ids := slices.Sorted(maps.Values(members))
	_, err = i.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: ids[0]})
	wantCode(t, err, codes.InvalidArgument)
	got, err := i.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	wantCode(t, err, codes.OK)
	same(t, got.GetGroupSnapshot(), group)
	_, err = i.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids[:1]})
	wantCode(t, err, codes.InvalidArgument)
	_, err = i.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	wantCode(t, err, codes.OK)
	_, err = i.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	wantCode(t, err, codes.NotFound)
}

func TestPublish_onlyWhereVolumesAreAttached(t *testing.T) {
	i := start(t, Controller, attaching{memory{newPlain()}})
	id := i.mustCreate(t, "v").GetVolumeId()
	request := &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: "n1", VolumeCapability: raw(), Readonly: true, VolumeContext: map[string]string{"of": "context"}}
	response, err := i.ControllerPublishVolume(t.Context(), request)
	wantCode(t, err, codes.OK)
	same(t, response.GetPublishContext(), map[string]string{"device": "/dev/x", "readOnly": "true", "of": "context"})
	request.VolumeId = "none"
	_, err = i.ControllerPublishVolume(t.Context(), request)
	wantCode(t, err, codes.NotFound)
	_, err = i.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
	wantCode(t, err, codes.OK)
}

func TestHealth_ofVolumes(t *testing.T) {
	plain := newPlain()
	i := start(t, Controller, memory{plain})
	well, unwell := i.mustCreate(t, "a").GetVolumeId(), i.mustCreate(t, "b").GetVolumeId()
	lost := backend.HealthProblem{Kind: backend.HealthDataLoss, Reason: "BadBlocks", Message: "12 blocks cannot be read"}
	plain.problems[unwell] = []backend.HealthProblem{lost, lost}
	want := &csi.VolumeHealth{VolumeId: unwell, HealthStatuses: []*csi.VolumeHealth_VolumeHealthEntry{
		{Status: csi.VolumeHealthErrorType_DATA_LOSS, Reason: "BadBlocks", Message: "12 blocks cannot be read"},
	}}
	one, err := i.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: unwell})
	wantCode(t, err, codes.OK)
	same(t, one.GetVolumeHealth(), want)
	one, err = i.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: well})
	wantCode(t, err, codes.OK)
	same(t, one.GetVolumeHealth(), &csi.VolumeHealth{VolumeId: well})
	all, err := i.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	wantCode(t, err, codes.OK)
	same(t, all.GetEntries(), []*csi.VolumeHealth{want})
	_, err = i.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: "none"})
	wantCode(t, err, codes.NotFound)
}

func TestIdentity_nameVersionAndHealth(t *testing.T) {
	plain := newPlain()
	i := start(t, All, memory{plain})
	info, err := i.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	wantCode(t, err, codes.OK)
	same(t, info, &csi.GetPluginInfoResponse{Name: "memory.test", VendorVersion: "v1.2.3"})
	probe, err := i.Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, err, codes.OK)
	if !probe.GetReady().GetValue() {
		t.Error("the driver is not ready")
	}
	plain.unwell = fmt.Errorf("%w: the pool is away", backend.ErrUnavailable)
	_, err = i.Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, err, codes.FailedPrecondition)
	plain.unwell, i.engine.fail = nil, errors.New("/dev/loop-control is missing")
	_, err = i.Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, err, codes.FailedPrecondition)
}

// warning is a backend whose creations have a warning.
type warning struct{ memory }

func (w warning) CreateVolume(ctx context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	backend.Warn(ctx, "fewer IOPS")
	return w.memory.CreateVolume(ctx, spec)
}

func TestCreateVolume_hasTheBackendsWarningsInItsTrailer(t *testing.T) {
	plain := newPlain()
	i := start(t, Controller, warning{memory{plain}})
	request := &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: single()}
	var trailer metadata.MD
	_, err := i.CreateVolume(t.Context(), request, grpc.Trailer(&trailer))
	wantCode(t, err, codes.OK)
	if got := trailer.Get(message.WarningTrailer); !slices.Equal(got, []string{"fewer IOPS"}) {
		t.Errorf("the trailer has %q", got)
	}
	plain.fail, request.Name = backend.ErrNoSpace, "w"
	_, err = i.CreateVolume(t.Context(), request, grpc.Trailer(&trailer))
	wantCode(t, err, codes.ResourceExhausted)
	if got := trailer.Get(message.WarningTrailer); len(got) > 0 {
		t.Errorf("a failed call has the warnings %q", got)
	}
}
