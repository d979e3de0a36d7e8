package nodeside

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// staging is the node engine over a machine, with a kubelet's directory.
type staging struct {
	*machine
	engine *node.Engine
	path   string
}

func newStaging(m *machine, n *Node) *staging {
	m.t.Helper()
	kubelet := filepath.Join(m.dir, "kubelet")
	s := &staging{machine: m, path: filepath.Join(kubelet, "plugins", "globalmount")}
	m.must(os.MkdirAll(s.path, 0o750))
	engine, err := node.New(node.Options{Backend: n, KubeletDir: kubelet, Forbidden: []string{m.dev, m.sys, m.state},
		Traits: backend.Traits{Filesystems: []string{"ext4", "xfs"}, Block: true}})
	m.must(err)
	s.engine = engine
	return s
}

func (s *staging) stage(id, fsType string, volumeContext map[string]string) error {
	s.t.Helper()
	return s.engine.Stage(s.t.Context(), node.StageRequest{VolumeID: id, StagingPath: s.path, VolumeContext: volumeContext,
		Capability: backend.Capability{Mode: backend.SingleNodeWriter, FSType: fsType}})
}

func (s *staging) unstage(id string) {
	s.t.Helper()
	s.must(s.engine.Unstage(s.t.Context(), id, s.path))
}

func (s *staging) wantFile(name, want string) {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(s.path, name))
	if err != nil || string(got) != want {
		s.t.Fatalf("%s holds %q, %v; want %q", name, got, err, want)
	}
}

// The whole way of a volume on a node, and once more after it was attached
// under another name.
func TestEngine_stagesGrowsAndUnstagesAVolume(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	for range 2 {
		m.must(s.stage(volumeA, "ext4", nil))
	}
	m.must(os.WriteFile(filepath.Join(s.path, "file"), []byte("kept"), 0o600))
	s.unstage(volumeA)
	s.unstage(volumeA)
	disk.unplug()
	disk.name = "nvme7n1"
	m.attributes(disk.name, map[string]string{"device/serial": "vol0123456789abcdef0", "device/model": AmazonModel, "dev": numberText(disk.loop.Number)})
	disk.makeNode()
	m.must(s.stage(volumeA, "ext4", nil))
	s.wantFile("file", "kept")
	s.unstage(volumeA)
}
