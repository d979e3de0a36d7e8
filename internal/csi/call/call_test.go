package call

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
)

func TestMethods_areThoseOfTheGeneratedServers(t *testing.T) {
	var want []string
	for _, service := range []grpc.ServiceDesc{
		csi.Identity_ServiceDesc, csi.Controller_ServiceDesc, csi.GroupController_ServiceDesc, csi.SnapshotMetadata_ServiceDesc, csi.Node_ServiceDesc,
	} {
		for _, method := range service.Methods {
			want = append(want, "/"+service.ServiceName+"/"+method.MethodName)
		}
		for _, stream := range service.Streams {
			want = append(want, "/"+service.ServiceName+"/"+stream.StreamName)
		}
	}
	if got := len(Methods()); got != len(want) {
		t.Errorf("there are %d methods, want %d", got, len(want))
	}
	for _, path := range want {
		if method, err := Find(path); err != nil || method.Path() != path {
			t.Errorf("%s: found %s, %v", path, method.Path(), err)
		}
	}
}

func TestFind_spellings(t *testing.T) {
	for _, name := range []string{"CreateVolume", "Controller/CreateVolume", "create-volume", "create_volume", "createvolume", "csi.v1.Controller/CreateVolume", "controller/create-volume"} {
		if method, err := Find(name); err != nil || method.String() != "Controller/CreateVolume" {
			t.Errorf("%s: found %s, %v", name, method, err)
		}
	}
	for name, want := range map[string]string{"CreateVolum": "did you mean CreateVolume?", "node-publish": "csi list", "": "csi list", "Node/CreateVolume": "no RPC"} {
		if _, err := Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

func TestMethods_alphaAndStreams(t *testing.T) {
	for name, want := range map[string][2]bool{
		"CreateVolume": {false, false}, "GetSnapshot": {true, false}, "ControllerGetVolume": {true, false}, "NodeGetStorageHealth": {true, false},
		"GetMetadataAllocated": {true, true}, "GetMetadataDelta": {true, true}, "CreateVolumeGroupSnapshot": {false, false},
	} {
		method, err := Find(name)
		if err != nil || method.Alpha != want[0] || method.Stream != want[1] {
			t.Errorf("%s: alpha %v, stream %v, want %v; %v", name, method.Alpha, method.Stream, want, err)
		}
	}
}

func TestTemplate_isARequest(t *testing.T) {
	for _, method := range Methods() {
		text, err := method.Template()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := method.Build(Input{JSON: text}); err != nil {
			t.Errorf("%s: %v\n%s", method, err, text)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil || len(fields) < len(method.RequestFields())-1 {
			t.Errorf("%s: the template has %d of %d fields, %v", method, len(fields), len(method.RequestFields()), err)
		}
	}
}

func build(t *testing.T, name string, input Input) (*csi.CreateVolumeRequest, error) {
	t.Helper()
	method, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	request, err := method.Build(input)
	if err != nil {
		return nil, err
	}
	wire, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	typed := &csi.CreateVolumeRequest{}
	if err := proto.Unmarshal(wire, typed); err != nil {
		t.Fatal(err)
	}
	return typed, nil
}

func TestBuild_setsFields(t *testing.T) {
	got, err := build(t, "CreateVolume", Input{JSON: []byte(`{"name":"old","parameters":{"a":"1"}}`), Set: []string{
		"name=new", "capacity_range.required_bytes=1Gi", "capacityRange.limitBytes=2147483648",
		"parameters.csi.storage.k8s.io/pvc/name=claim", "parameters[a=b", "parameters[b]=x=y",
		"volume_capabilities[0].mount.fs_type=ext4", "volume_capabilities[0].mount.mount_flags=noatime", "volume_capabilities[0].mount.mount_flags[]=ro",
		"volume_capabilities[0].access_mode.mode=single_node_writer", "volume_capabilities[1].block={}", "volume_capabilities[1].access_mode={\"mode\":5}",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := &csi.CreateVolumeRequest{}
	if err := protojson.Unmarshal([]byte(`{
		"name": "new", "parameters": {"a": "b", "b": "x=y", "csi.storage.k8s.io/pvc/name": "claim"},
		"capacityRange": {"requiredBytes": "1073741824", "limitBytes": "2147483648"},
		"volumeCapabilities": [
			{"mount": {"fsType": "ext4", "mountFlags": ["noatime", "ro"]}, "accessMode": {"mode": "SINGLE_NODE_WRITER"}},
			{"block": {}, "accessMode": {"mode": "MULTI_NODE_MULTI_WRITER"}}
		]}`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBuild_refusesInvalidInput(t *testing.T) {
	cases := []struct {
		name string
		in   Input
		want string
	}{
		{"an unknown field", Input{JSON: []byte(`{"nam":"x"}`)}, `unknown field "nam"`},
		{"a wrong type", Input{JSON: []byte(`{"name":7}`)}, "name"},
		{"no JSON", Input{JSON: []byte(`name`)}, "CreateVolume"},
		{"a secret on the command line", Input{JSON: []byte(`{"secrets":{"a":"b"}}`), Public: true}, "--secret KEY=@FILE"},
		{"a secret by --set", Input{Set: []string{"secrets.a=b"}}, "--secret KEY=@FILE"},
		{"an unknown path", Input{Set: []string{"nme=x"}}, "it has name,"},
		{"an unknown path below", Input{Set: []string{"capacity_range.min=1"}}, "required_bytes"},
		{"no value", Input{Set: []string{"name"}}, "PATH=VALUE"},
		{"a field of a text", Input{Set: []string{"name.x=1"}}, "has no fields"},
		{"an element of a text", Input{Set: []string{"name[0]=1"}}, "not a list"},
		{"a map without a key", Input{Set: []string{"parameters=1"}}, "is a map"},
		{"an index that is none", Input{Set: []string{"volume_capabilities[x].block={}"}}, "index"},
		{"a huge index", Input{Set: []string{"volume_capabilities[999999999].block={}"}}, "index"},
		{"a mode that is none", Input{Set: []string{"volume_capabilities[0].access_mode.mode=RW"}}, "SINGLE_NODE_WRITER"},
		{"a number that is none", Input{Set: []string{"capacity_range.required_bytes=much"}}, "10Gi"},
		{"half a byte", Input{Set: []string{"capacity_range.required_bytes=500m"}}, "64-bit integer"},
	}
	for _, c := range cases {
		if _, err := build(t, "CreateVolume", c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := build(t, "NodeGetInfo", Input{Secrets: map[string]string{"a": "hunter2"}}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("secrets for a call without: %v", err)
	}
}

func TestCheck_namesTheField(t *testing.T) {
	for _, c := range []struct{ call, request, want string }{
		{"NodeStageVolume", `{"volume_id":"v"}`, "staging_target_path is missing"},
		{"DeleteVolume", `{"volume_id":"` + strings.Repeat("x", 129) + `"}`, "volume_id has 129 bytes; the limit is 128"},
		{"ListVolumes", `{"max_entries":-1}`, "max_entries is -1"},
		{"GetMetadataDelta", `{"base_snapshot_id":"v"}`, "target_snapshot_id is missing"},
		{"CreateSnapshot", `{"name":"a\u0007","source_volume_id":"v"}`, "name has the control character U+0007"},
		{"CreateVolume", `{"name":"v","volume_capabilities":[{"mount":{},"access_mode":{"mode":1}}],"parameters":{"k":"` + strings.Repeat("x", 4096) + `"}}`, "parameters has 4097 bytes"},
	} {
		method, err := Find(c.call)
		if err != nil {
			t.Fatal(err)
		}
		request, err := method.Build(Input{JSON: []byte(c.request)})
		if err != nil {
			t.Fatal(err)
		}
		if err := method.Check(request); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.call, err, c.want)
		}
	}
}

func TestReadSecrets(t *testing.T) {
	directory := t.TempDir()
	mounted := filepath.Join(directory, "mounted")
	for name, text := range map[string]string{"one": "uno\n", "set.json": `{"b":"2","c":"3"}`, "bad.json": `{"b":hunter2}`, "mounted/d": "4", "mounted/..data": "no"} {
		if err := os.MkdirAll(mounted, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadSecrets([]string{"a=@" + filepath.Join(directory, "one"), "b=@-"}, filepath.Join(directory, "set.json"), strings.NewReader("in"))
	if err != nil || len(got) != 3 || got["a"] != "uno\n" || got["b"] != "in" || got["c"] != "3" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ReadSecrets(nil, mounted, nil); err != nil || len(got) != 1 || got["d"] != "4" {
		t.Errorf("a directory gives %q, %v", got, err)
	}
	for _, wrong := range []string{"a=hunter2", "hunter2", "=@x", "a=@" + directory + "/none"} {
		if _, err := ReadSecrets([]string{wrong}, "", nil); err == nil || (strings.Contains(err.Error(), "hunter2") && wrong != "hunter2") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, err := ReadSecrets(nil, filepath.Join(directory, "bad.json"), nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file that is not JSON: %v", err)
	}
}

func TestJSON_hidesSecretsAndIsStable(t *testing.T) {
	message := &csi.DeleteVolumeRequest{VolumeId: "v", Secrets: map[string]string{"password": "hunter2"}}
	text, err := JSON(message, false)
	if want := `{"volume_id":"v","secrets":{"password":"` + csimessage.Hidden + `"}}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v; want %s", text, err, want)
	}
}
