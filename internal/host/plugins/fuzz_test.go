package plugins

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// longestProblem is what an error about a plugin may have: it is sent to the plugin, logged
// and shown.
const longestProblem = 64 << 10

// FuzzValidate is a plugin that says anything about itself and this node. What is accepted
// has a name that objects can have, and what is refused has a bounded reason.
func FuzzValidate(f *testing.F) {
	add := func(message proto.Message, node bool) {
		wire, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, node)
	}
	add(&registration.PluginInfo{Type: registration.CSIPlugin, Name: "d.example", Endpoint: "/csi.sock", SupportedVersions: []string{"1.0.0", "v2"}}, false)
	add(&registration.PluginInfo{Name: "D..", SupportedVersions: make([]string, 5000)}, false)
	add(&registration.PluginInfo{Name: "d", SupportedVersions: []string{"1", "99999999999999999999.0", "0x1.2", "1.2.3.4.5"}}, false)
	add(&csi.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: -1, AccessibleTopology: &csi.Topology{Segments: map[string]string{"a/b": "c", "": "", "x y": "\x01"}}}, true)
	f.Fuzz(func(t *testing.T, wire []byte, node bool) {
		var problem error
		fuzztest.Cost{}.Within(t, len(wire), func() {
			if node {
				answer := &csi.NodeGetInfoResponse{}
				if proto.Unmarshal(wire, answer) != nil {
					return
				}
				if problem = validateNode(answer); problem == nil && (answer.GetNodeId() == "" || len(answer.GetNodeId()) > maximumNodeID) {
					t.Errorf("the node %q is accepted", answer.GetNodeId())
				}
				return
			}
			info := &registration.PluginInfo{}
			if proto.Unmarshal(wire, info) != nil {
				return
			}
			if problem = validate(info); problem == nil && (info.GetName() == "" || len(info.GetName()) > maximumName || len(info.GetSupportedVersions()) == 0) {
				t.Errorf("the plugin %v is accepted", info)
			}
		})
		if problem != nil && (problem.Error() == "" || len(problem.Error()) > longestProblem) {
			t.Errorf("the reason has %d bytes", len(problem.Error()))
		}
	})
}
