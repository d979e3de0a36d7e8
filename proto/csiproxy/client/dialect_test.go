package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csi/statuscode"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// sent is a call that every version can express, and its answer.
type sent struct {
	method  string
	request proto.Message
	asks    []string
	answer  proto.Message
}

const volumeID = `\\?\Volume{0d7a1c52-6a4e-4b93-9d0f-3a2b1c4d5e6f}\`

func common() []sent {
	portal := &v1.ISCSIPortal{Address: "fe80::1", Port: 3261}
	mounted := []string{
		"Disks {fe80::1 3261} iqn.x", "Connect {fe80::1 3261} iqn.x auth 1 as u with s", "Disks {fe80::1 3261} iqn.x", "List",
		"SetOnline 7 {Page83:600508e0 SerialNumber:vol0123} true",
	}
	return []sent{
		{"Mkdir", &v1.MkdirRequest{Path: "p"}, []string{"Mkdir p"}, &v1.MkdirResponse{}},
		{"Rmdir", &v1.RmdirRequest{Path: "p"}, []string{"Rmdir p false"}, &v1.RmdirResponse{}},
		{"Rescan", &v1.RescanRequest{}, []string{"Rescan"}, &v1.RescanResponse{}},
		{"FormatVolume", &v1.FormatVolumeRequest{VolumeId: volumeID, FileSystem: "NTFS", StagingPath: "p"},
			[]string{"FileSystem " + volumeID, "At p", "Mount " + volumeID + " at p"}, &v1.FormatVolumeResponse{}},
		{"MountSMBShare", &v1.MountSMBShareRequest{RemotePath: `\\s\x`, StagingPath: "p", Username: "u", Password: "w"},
			[]string{`Mount \\s\x at p as u with w`}, &v1.MountSMBShareResponse{}},
		{"MountISCSILun", &v1.MountISCSILunRequest{Portal: portal, Iqn: "iqn.x", Lun: 4,
			AuthType: v1.ISCSIAuthType_ISCSI_AUTH_TYPE_ONE_WAY_CHAP, ChapUsername: "u", ChapSecret: "s"},
			mounted, &v1.MountISCSILunResponse{DiskNumber: 7}},
		{"LinkVolume", &v1.LinkVolumeRequest{StagingPath: "p", TargetPath: "q"}, []string{"Link source p link q"}, &v1.LinkVolumeResponse{}},
		{"GetDiskLocations", &v1.GetDiskLocationsRequest{}, []string{"List"},
			&v1.GetDiskLocationsResponse{DiskLocations: map[uint32]*v1.DiskLocation{7: {Adapter: 1, Bus: 2, Target: 3, Lun: 4}}}},
		{"GetDiskIDs", &v1.GetDiskIDsRequest{}, []string{"List"},
			&v1.GetDiskIDsResponse{DiskIds: map[uint32]*v1.DiskIDs{7: {
				Page83: "600508e0", SerialNumber: "vol0123",
				Identifiers: []*v1.DiskIdentifier{{CodeSet: 1, Type: 3, Value: "600508e0"}, {CodeSet: 2, Type: 8, Association: 1, Value: "a port"}},
			}}}},
	}
}

// A call of v1 makes the same calls to the machine in every version.
func TestDialects_askTheSameInEveryVersion(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t)
			n.run(only(version)...)
			proxy, err := client.Dial(t.Context(), n.plugin("v1alpha1"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = proxy.Close() }()
			for _, c := range common() {
				n.machine.Calls()
				response := c.answer.ProtoReflect().New().Interface()
				if err := proxy.Invoke(t.Context(), "/"+v1.CSIProxyService_ServiceDesc.ServiceName+"/"+c.method, c.request, response); err != nil {
					t.Errorf("%s: %v", c.method, err)
				}
				if diff := cmp.Diff(c.asks, n.machine.Calls()); diff != "" {
					t.Errorf("%s asks (-want +got):\n%s", c.method, diff)
				}
				options := cmp.Options{protocmp.Transform()}
				if version == "v1alpha1" { // which has the values of identifiers only
					options = append(options, protocmp.IgnoreFields(&v1.DiskIdentifier{}, "code_set", "type", "association"))
				}
				if diff := cmp.Diff(c.answer, response, options); diff != "" {
					t.Errorf("%s answers (-want +got):\n%s", c.method, diff)
				}
			}
			partition, err := proxy.PartitionDisk(t.Context(), &v1.PartitionDiskRequest{DiskNumber: 4294967295})
			if err != nil || partition.GetVolumeId() != volumeID {
				t.Errorf("PartitionDisk: %v, %v", partition, err)
			}
			resized, err := proxy.ResizeVolume(t.Context(), &v1.ResizeVolumeRequest{VolumeId: volumeID, SizeBytes: 5})
			if want := map[string]int64{"v1": 5, "v1beta1": 5}[version]; err != nil || resized.GetSizeBytes() != want {
				t.Errorf("ResizeVolume: %v, %v", resized, err)
			}
		})
	}
}

// A call that the version of the node's proxy cannot express is never made
// in another sense, and names what it needs.
func TestDialects_whatAVersionCannotExpressIsAnError(t *testing.T) {
	mutual := &v1.MountISCSILunRequest{Portal: &v1.ISCSIPortal{Address: "a"},
		AuthType: v1.ISCSIAuthType_ISCSI_AUTH_TYPE_MUTUAL_CHAP, ChapSecret: "hidden secret"}
	both, alpha, beta := []string{"v1beta1", "v1alpha1"}, []string{"v1alpha1"}, []string{"v1beta1"}
	for _, c := range []struct {
		method  string
		request proto.Message
		in      []string // versions
		needs   string
	}{
		{"Rmdir", &v1.RmdirRequest{Path: "p", Force: true}, alpha, "v1beta1"},
		{"PartitionDisk", &v1.PartitionDiskRequest{DiskNumber: 1, ExpectedIds: &v1.DiskIDs{SerialNumber: "s"}}, both, "v1"},
		{"FormatVolume", &v1.FormatVolumeRequest{VolumeId: "v"}, both, "v1"},
		{"MountSMBShare", &v1.MountSMBShareRequest{RemotePath: "r", Password: "hidden secret"}, both, "v1"},
		{"UnmountSMBShare", &v1.UnmountSMBShareRequest{RemotePath: "r"}, beta, "v1"},
		{"UnmountSMBShare", &v1.UnmountSMBShareRequest{RemotePath: "r", StagingPath: "p"}, alpha, "v1beta1"},
		{"MountISCSILun", mutual, both, "v1"},
		{"UnmountVolume", &v1.UnmountVolumeRequest{}, alpha, "v1beta1"},
		{"ListDisks", &v1.ListDisksRequest{}, both, "v1"},
		{"SetISCSIMutualSecret", &v1.SetISCSIMutualSecretRequest{Secret: "hidden secret"}, both, "v1"},
	} {
		for _, version := range c.in {
			n := newNode(t)
			n.run(only(version)...)
			proxy, err := client.Dial(t.Context(), n.plugin("v1alpha1"))
			if err != nil {
				t.Fatal(err)
			}
			err = proxy.Invoke(t.Context(), "/"+v1.CSIProxyService_ServiceDesc.ServiceName+"/"+c.method, c.request, nil)
			if !errors.Is(err, client.ErrVersion) || !strings.Contains(err.Error(), "needs "+c.needs) || !strings.Contains(err.Error(), version) {
				t.Errorf("%s in %s: %v; want one that names %s", c.method, version, err, c.needs)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("the secret is in %v", err)
			}
			if calls := n.machine.Calls(); len(calls) > 0 {
				t.Errorf("%s in %s asked %q", c.method, version, calls)
			}
			_ = proxy.Close()
		}
	}
}

// garbled serves v1alpha1 as a faulty proxy does: with texts that are not numbers.
type garbled struct {
	v1alpha1.UnimplementedCSIProxyServiceServer
}

func (garbled) Mkdir(context.Context, *v1alpha1.MkdirRequest) (*v1alpha1.MkdirResponse, error) {
	return nil, backend.ErrInvalid
}

func (garbled) GetDiskLocations(
	context.Context, *v1alpha1.GetDiskLocationsRequest,
) (*v1alpha1.GetDiskLocationsResponse, error) {
	return &v1alpha1.GetDiskLocationsResponse{DiskLocations: map[string]*v1alpha1.DiskLocation{
		"7": {Adapter: "none", Bus: "2", Target: "3", Lun: "4"},
	}}, nil
}

// The request was valid: a caller must not take the answer for a final INVALID_ARGUMENT.
func TestDialects_anAnswerThatCannotBeConvertedIsNotAnInvalidRequest(t *testing.T) {
	n := newNode(t)
	n.run(api.Definition{Version: v1alpha1.Version, Register: func(registrar grpc.ServiceRegistrar, _ api.Host) {
		v1alpha1.RegisterCSIProxyServiceServer(registrar, garbled{})
	}})
	proxy, err := client.Dial(t.Context(), n.plugin("v1alpha1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = proxy.Close() }()
	_, err = proxy.GetDiskLocations(t.Context(), &v1.GetDiskLocationsRequest{})
	if got := statuscode.Of(err); got != codes.Internal || !strings.Contains(err.Error(), `adapter "none" is not a number`) {
		t.Errorf("%v: %v", got, err)
	}
}

// The client sends v1's messages to v1beta1, so each of its fields must be v1's.
func TestDialects_messagesOfV1beta1AreThoseOfV1(t *testing.T) {
	beta, stable := v1beta1.File_proto_csiproxy_v1beta1_api_proto, v1.File_proto_csiproxy_v1_api_proto
	for i := range beta.Messages().Len() {
		message := beta.Messages().Get(i)
		other := stable.Messages().ByName(message.Name())
		if other == nil {
			t.Errorf("v1 has no %s", message.Name())
			continue
		}
		for j := range message.Fields().Len() {
			field := message.Fields().Get(j)
			if diff := cmp.Diff(describe(field), describe(other.Fields().ByNumber(field.Number()))); diff != "" {
				t.Errorf("%s.%s (-v1beta1 +v1):\n%s", message.Name(), field.Name(), diff)
			}
		}
	}
	for _, method := range v1beta1.CSIProxyService_ServiceDesc.Methods {
		if !slices.ContainsFunc(v1.CSIProxyService_ServiceDesc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == method.MethodName }) {
			t.Errorf("v1 has no %s", method.MethodName)
		}
	}
}

// described is what of a field travels, and its name.
type described struct {
	Name, Kind, Message string
	List, Map           bool
}

func describe(field protoreflect.FieldDescriptor) described {
	if field == nil {
		return described{}
	}
	d := described{Name: string(field.Name()), Kind: field.Kind().String(), List: field.IsList(), Map: field.IsMap()}
	if field.Message() != nil {
		d.Message = string(field.Message().Name())
	}
	if field.Enum() != nil {
		d.Message = string(field.Enum().Name())
	}
	return d
}
