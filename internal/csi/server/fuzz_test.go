package server

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/csi/message/messagetest"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// fuzzed is a whole driver, without a socket, on a backend and an engine in memory.
func fuzzed(t testing.TB) *fuzztest.Services {
	t.Helper()
	guarded := guard.New(attaching{memory{newPlain()}})
	driver, err := New(Options{
		Mode: All, Version: "v1", Endpoint: "unix:///csi.sock", Traits: guarded.Traits(), Features: guarded.Features(),
		Guard: guarded, Engine: &engine{}, NodeID: "n1", Registerer: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug})), //nolint:sloglint // it has to format each record
	})
	if err != nil {
		t.Fatal(err)
	}
	services := &fuzztest.Services{Interceptor: driver.Intercept}
	driver.Register(services)
	return services
}

// scripts are seeds: every method alone, and the life of a volume, of a snapshot and of a
// group.
func scripts(f *testing.F) {
	f.Helper()
	methods := map[string]int{}
	for i, method := range fuzzed(f).Methods {
		methods[method.Name[strings.LastIndexByte(method.Name, '/')+1:]] = i
		f.Add(fuzztest.Append(nil, i, nil))
	}
	add := func(script []byte, method string, request proto.Message) []byte {
		wire, err := proto.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		index, found := methods[method]
		if !found {
			f.Fatalf("the driver has no method %s", method)
		}
		return fuzztest.Append(script, index, wire)
	}
	for _, request := range messagetest.Filled(f, "x") {
		method := strings.TrimSuffix(request.Name(), "Request")
		if _, found := methods[method]; found {
			f.Add(add(nil, method, request.Message))
		}
	}
	writer := csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	mounted := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	life := add(nil, "CreateVolume", &csi.CreateVolumeRequest{
		Name: "a", VolumeCapabilities: []*csi.VolumeCapability{mounted}, Parameters: map[string]string{"kind": "k"},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, Secrets: map[string]string{"s": "t"},
	})
	attached := add(life, "ControllerPublishVolume", &csi.ControllerPublishVolumeRequest{VolumeId: "vol-a", NodeId: "n1", VolumeCapability: mounted})
	f.Add(add(attached, "ControllerUnpublishVolume", &csi.ControllerUnpublishVolumeRequest{VolumeId: "vol-a", NodeId: "n1"}))
	f.Add(add(life, "ControllerExpandVolume", &csi.ControllerExpandVolumeRequest{VolumeId: "vol-a", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30}}))
	f.Add(add(life, "ControllerModifyVolume", &csi.ControllerModifyVolumeRequest{VolumeId: "vol-a", MutableParameters: map[string]string{"speed": "9"}}))
	f.Add(add(add(life, "ListVolumes", &csi.ListVolumesRequest{MaxEntries: 1}), "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: "vol-a"}))
	copied := add(life, "CreateSnapshot", &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "vol-a"})
	f.Add(add(copied, "ListSnapshots", &csi.ListSnapshotsRequest{SourceVolumeId: "vol-a"}))
	f.Add(add(copied, "DeleteSnapshot", &csi.DeleteSnapshotRequest{SnapshotId: "snap-s"}))
	f.Add(add(copied, "CreateVolume", &csi.CreateVolumeRequest{
		Name: "b", VolumeCapabilities: []*csi.VolumeCapability{mounted},
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "snap-s"}}},
	}))
	f.Add(add(add(life, "CreateVolumeGroupSnapshot", &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"vol-a"}}),
		"DeleteVolumeGroupSnapshot", &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "grp-g", SnapshotIds: []string{"snap-g-vol-a"}}))
	stage := &csi.NodeStageVolumeRequest{VolumeId: "vol-a", StagingTargetPath: "/s", VolumeCapability: mounted}
	staged := add(nil, "NodeStageVolume", stage)
	f.Add(add(staged, "NodePublishVolume", &csi.NodePublishVolumeRequest{VolumeId: "vol-a", StagingTargetPath: "/s", TargetPath: "/t", VolumeCapability: mounted}))
}

// FuzzServer calls every method of every service with any bytes, in any order, through
// the interceptor, the guard and a backend in memory. No call panics, each error is one of
// CSI's codes with a message and without details, each answer can be sent, and a call that
// succeeded has the same answer when it is repeated.
func FuzzServer(f *testing.F) {
	scripts(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		services := fuzzed(t)
		fuzztest.Cost{}.Within(t, len(data), func() {
			for _, call := range fuzztest.Script(data, len(services.Methods)) {
				method := services.Methods[call.Method]
				response := called(t, method, call.Request)
				if response == nil {
					continue
				}
				if again := called(t, method, call.Request); again == nil || !proto.Equal(response, again) {
					t.Fatalf("%s: the answer is %v; repeated, it is %v", method.Name, response, again)
				}
			}
		})
	})
}

// called returns the answer of a call, nil for an error.
func called(t *testing.T, method fuzztest.Method, request []byte) proto.Message {
	t.Helper()
	response, read, err := method.Call(context.Background(), request)
	if !read {
		return nil
	}
	if err != nil {
		refused, ok := status.FromError(err)
		if !ok || refused.Message() == "" || len(refused.Details()) > 0 || len(refused.Message()) > 4<<10 {
			t.Fatalf("%s: the error is %v", method.Name, err)
		}
		switch refused.Code() {
		case codes.OK, codes.Unknown, codes.Internal, codes.DataLoss, codes.Canceled, codes.DeadlineExceeded:
			t.Fatalf("%s: %v", method.Name, err)
		}
		return nil
	}
	if _, err := proto.Marshal(response); err != nil {
		t.Fatalf("%s: the answer cannot be sent: %v", method.Name, err)
	}
	return response
}
