package csiproxy_test

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// Fields of older versions that v1 has under another name or in another form; each
// is converted by a rule.
func ruled() map[protoreflect.FullName]bool {
	return map[protoreflect.FullName]bool{
		"csiproxy.v1alpha1.PartitionDiskRequest.disk_id":  true,
		"csiproxy.v1alpha1.MountISCSILunResponse.disk_id": true,
		"csiproxy.v1alpha1.MountISCSILunRequest.portal":   true,
		"csiproxy.v1alpha1.DiskIDs.identifiers":           true,
	}
}

// A field that v1 lacks would be ignored in silence: the conversion is by name.
func TestConversion_losesNoFieldOfAnOlderVersion(t *testing.T) {
	stable := v1.File_proto_csiproxy_v1_api_proto.Messages()
	seen := 0
	for _, file := range []protoreflect.FileDescriptor{
		v1beta1.File_proto_csiproxy_v1beta1_api_proto, v1alpha1.File_proto_csiproxy_v1alpha1_api_proto,
	} {
		for i := range file.Messages().Len() {
			message := file.Messages().Get(i)
			for j := range message.Fields().Len() {
				field := message.Fields().Get(j)
				counterpart := stable.ByName(message.Name()).Fields().ByName(field.Name())
				if ruled()[field.FullName()] {
					seen++
					if counterpart != nil && counterpart.Kind() == field.Kind() && counterpart.IsMap() == field.IsMap() {
						t.Errorf("%s needs no rule", field.FullName())
					}
					continue
				}
				if counterpart == nil || !convert.Converts(field, counterpart) {
					t.Errorf("%s is lost in the conversion to v1", field.FullName())
				}
			}
		}
	}
	if seen != len(ruled()) {
		t.Errorf("%d fields have rules, %d exist", len(ruled()), seen)
	}
}

// Each call of an older version is converted, request and response. The cost must stay
// negligible against an operation, of which the fastest is a call to another process.
func BenchmarkConversion(b *testing.B) {
	disks := map[uint32]*v1.DiskIDs{}
	for i := range uint32(8) {
		disks[i] = &v1.DiskIDs{Page83: "600508e0", SerialNumber: "vol0123"}
	}
	b.Run("request", func(b *testing.B) {
		request := &v1beta1.FormatVolumeRequest{VolumeId: `\\?\Volume{1}\`, StagingPath: path, FileSystem: "NTFS"}
		for b.Loop() {
			if _, err := csiproxy.ToStable(v1beta1.Version, "FormatVolume", request); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("login", func(b *testing.B) {
		request := &v1alpha1.MountISCSILunRequest{Portal: "10.0.0.1:3260", Iqn: iqn, Lun: "4", ChapUsername: "u", ChapSecret: "s"}
		for b.Loop() {
			if _, err := csiproxy.ToStable(v1alpha1.Version, "MountISCSILun", request); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("IDs of 8 disks", func(b *testing.B) {
		for b.Loop() {
			if _, err := csiproxy.FromStable(v1beta1.Version, "GetDiskIDs", &v1.GetDiskIDsResponse{DiskIds: disks}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
