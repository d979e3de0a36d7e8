package message

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/csi/message/messagetest"
)

func TestCheck_acceptsCompleteRequests(t *testing.T) {
	for _, request := range messagetest.Filled(t, "x") {
		if err := Check(request.Message); err != nil {
			t.Errorf("%s: %v", request.Name(), err)
		}
	}
}

// limitOf is the specification's limit of a field, written a second time.
func limitOf(field protoreflect.FieldDescriptor) int {
	switch name := string(field.Name()); {
	case field.IsMap():
		return 4096 - len("key")
	case name == "mount_flags":
		return 4096
	case strings.HasSuffix(name, "path"):
		return 4095
	case name == "node_id":
		return 256
	}
	return 128
}

func TestCheck_sizeOfEveryField(t *testing.T) {
	for _, request := range messagetest.Filled(t, "x") {
		for _, entry := range request.Texts {
			limit := limitOf(entry.Field)
			entry.Set(messagetest.Root() + strings.Repeat("x", limit-len(messagetest.Root())))
			if err := Check(request.Message); err != nil {
				t.Errorf("%s.%s of %d bytes is refused: %v", request.Name(), entry.Path, limit, err)
			}
			entry.Set(messagetest.Root() + strings.Repeat("x", limit))
			refuses(t, request, entry.Path)
			entry.Set(messagetest.Root() + "x")
		}
	}
}

func TestCheck_controlCharactersInEveryField(t *testing.T) {
	for _, request := range messagetest.Filled(t, "x") {
		for _, entry := range request.Texts {
			if entry.Field.IsMap() {
				continue
			}
			for _, text := range []string{"\x00", "a\x1b[2J", "\x7f", "\u0085"} {
				entry.Set(messagetest.Root() + text)
				refuses(t, request, entry.Path)
			}
			entry.Set(messagetest.Root() + "x \t\r\n")
			if err := Check(request.Message); err != nil && entry.Field.Name() != "mount_flags" {
				t.Errorf("%s.%s with white space is refused: %v", request.Name(), entry.Path, err)
			}
			entry.Set(messagetest.Root() + "x")
		}
	}
}

// refuses checks that the request is rejected as invalid and that the error names the field.
func refuses(t *testing.T, request messagetest.Complete, path string) {
	t.Helper()
	err := Check(request.Message)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%s: got %v, want a refusal that names %s", request.Name(), err, path)
	}
}

func TestCheck_negativeNumbers(t *testing.T) {
	cases := map[string]proto.Message{
		"max_entries":                   &csi.ListVolumesRequest{MaxEntries: -1},
		"capacity_range.required_bytes": &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: "/p", CapacityRange: &csi.CapacityRange{RequiredBytes: -1}},
		"capacity_range.limit_bytes":    &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1, LimitBytes: -1}},
	}
	for field, message := range cases {
		refuses(t, messagetest.Complete{Message: message}, field)
	}
}

func TestCheck_relativePath(t *testing.T) {
	request := messagetest.Complete{Message: &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "a/b"}}
	refuses(t, request, "target_path is not an absolute path")
}

func TestCheck_secretKeys(t *testing.T) {
	for _, key := range []string{"", "a b", "clé", "a/b"} {
		request := messagetest.Complete{Message: &csi.DeleteVolumeRequest{VolumeId: "v", Secrets: map[string]string{key: "s"}}}
		refuses(t, request, "secrets has a key")
	}
}

func TestCheck_choices(t *testing.T) {
	mode := &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	good := []*csi.VolumeCapability{{AccessMode: mode, AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}}
	cases := map[string]*csi.CreateVolumeRequest{
		"volume_capabilities[0]: one of block, mount":                 {Name: "n", VolumeCapabilities: []*csi.VolumeCapability{{AccessMode: mode}}},
		"volume_capabilities[0].access_mode is missing":               {Name: "n", VolumeCapabilities: []*csi.VolumeCapability{{AccessType: good[0].GetAccessType()}}},
		"volume_content_source: one of snapshot, volume":              {Name: "n", VolumeCapabilities: good, VolumeContentSource: &csi.VolumeContentSource{}},
		"capacity_range: one of required_bytes, limit_bytes":          {Name: "n", VolumeCapabilities: good, CapacityRange: &csi.CapacityRange{}},
		"accessibility_requirements: one of requisite, preferred":     {Name: "n", VolumeCapabilities: good, AccessibilityRequirements: &csi.TopologyRequirement{}},
		"volume_capabilities is missing":                              {Name: "n"},
		"volume_content_source.snapshot.snapshot_id is missing":       {Name: "n", VolumeCapabilities: good, VolumeContentSource: fromSourceWithoutID()},
		"volume_capabilities[0].access_mode.mode is missing":          {Name: "n", VolumeCapabilities: []*csi.VolumeCapability{{AccessMode: &csi.VolumeCapability_AccessMode{}, AccessType: good[0].GetAccessType()}}},
		"volume_capabilities[0].mount.fs_type has 129 bytes; the lim": {Name: "n", VolumeCapabilities: []*csi.VolumeCapability{{AccessMode: mode, AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: strings.Repeat("x", 129)}}}}},
	}
	for want, message := range cases {
		refuses(t, messagetest.Complete{Message: message}, want)
	}
}

func fromSourceWithoutID() *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{}}}
}

func TestCheckString_agreesWithTheSpecification(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.Rune(), 0, 140, 300).Draw(t, "text")
		banned := func(r rune) bool {
			return r <= 0x08 || r == 0x0b || r == 0x0c || (0x0e <= r && r <= 0x1f) || (0x7f <= r && r <= 0x9f)
		}
		want := len(text) <= 128 && !strings.ContainsFunc(text, banned)
		if got := checkString("name", "name", text) == nil; got != want {
			t.Fatalf("name %q of %d bytes: accepted %v, want %v", text, len(text), got, want)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, request := range messagetest.Filled(f, "x") {
		if wire, err := proto.Marshal(request.Message); err == nil {
			f.Add(wire)
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, message := range messagetest.Requests(t) {
			if proto.Unmarshal(wire, message) != nil {
				continue
			}
			_ = Check(message)
			_ = Loggable{message}.LogValue()
			_ = SecretsOf(message)
		}
	})
}
