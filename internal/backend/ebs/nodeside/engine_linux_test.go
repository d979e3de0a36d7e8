package nodeside

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// staging is the node engine over a machine, with a kubelet's directory.
type staging struct {
	*machine
	engine *node.Engine
	path   string
}

func newStaging(m *machine, n *Node, change ...func(*node.Options)) *staging {
	m.t.Helper()
	kubelet := filepath.Join(m.dir, "kubelet")
	s := &staging{machine: m, path: filepath.Join(kubelet, "plugins", "globalmount")}
	m.must(os.MkdirAll(s.path, 0o750))
	o := node.Options{Backend: n, KubeletDir: kubelet, Forbidden: []string{m.dev, m.sys, m.state},
		Traits: backend.Traits{Filesystems: []string{"ext4", "ext3", "xfs"}, Block: true}}
	for _, c := range change {
		c(&o)
	}
	engine, err := node.New(o)
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

// All steps of a volume on a node, and again after it was attached under another name.
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

// Format options are in the volume context. ext3 is distinguished from ext4, although the
// kernel mounts both with one driver: a volume with ext3 is not staged as ext4.
func TestEngine_formatsAsTheVolumeContextSays(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	options := map[string]string{"blocksize": "1k", "numberofinodes": "256"}
	for range 2 {
		m.must(s.stage(volumeA, "ext3", options))
	}
	if err := s.stage(volumeA, "ext4", options); !errors.Is(err, backend.ErrExists) {
		t.Errorf("staged as ext3 and then as ext4: %v", err)
	}
	var stat unix.Statfs_t
	m.must(unix.Statfs(s.path, &stat))
	if stat.Bsize != 1024 || stat.Files > 512 {
		t.Errorf("blocks of %d bytes, %d inodes", stat.Bsize, stat.Files)
	}
	s.unstage(volumeA)
}

func TestEngine_refusesFormatOptionsThatAreNone(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	for key, value := range map[string]string{
		"blocksize": "4096 -U clear", "inodesize": "-1", "bytesperinode": "+4096", "numberofinodes": "0", "ext4bigalloc": "maybe",
		"ext4clustersize": "65536", "ext4encryptionsupport": "yes!",
	} {
		if err := s.stage(volumeA, "ext4", map[string]string{key: value}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %q: %v", key, value, err)
		}
	}
	if err := s.stage(volumeA, "xfs", map[string]string{"bytesperinode": "4096"}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("bytes per inode of an xfs: %v", err)
	}
	m.must(s.stage(volumeA, "ext4", nil)) // nothing was written by the others
	s.unstage(volumeA)
}
