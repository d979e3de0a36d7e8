package nodeside

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
	"github.com/holdfast-csi/holdfast/internal/node"
)

const handleSDF = "local-ebs://dev/sdf"

// stageNodeLocal stages the handle with the volume that the controller found.
func (s *staging) stageNodeLocal(volume string, block bool) error {
	s.t.Helper()
	return s.engine.Stage(s.t.Context(), node.StageRequest{VolumeID: handleSDF, StagingPath: s.path,
		PublishContext: map[string]string{"devicePath": "/dev/sdf", "volumeID": volume},
		Capability:     backend.Capability{Mode: backend.MultiNodeMultiWriter, Block: block}})
}

func (s *staging) wantMounted(want bool) {
	s.t.Helper()
	table, err := mount.Table()
	s.must(err)
	mounted := false
	for _, m := range table {
		mounted = mounted || m.Mountpoint == s.path
	}
	if mounted != want {
		s.t.Fatalf("mounted is %t; want %t", mounted, want)
	}
}

// A node-local volume is staged, grown and unstaged by its handle, also by a process that
// has started since. After the instance got another volume, the handle means that one.
func TestNodeLocal_stagesTheVolumeOfTheInstance(t *testing.T) {
	m := newMachine(t)
	first := m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	s.unstage(handleSDF) // not staged yet
	for range 2 {
		m.must(s.stageNodeLocal(volumeA, false))
	}
	m.must(os.WriteFile(filepath.Join(s.path, "file"), []byte("kept"), 0o600))

	n := m.node() // a process that knows the handle from its record alone
	s = newStaging(m, n)
	if size, err := n.ResizeDevice(t.Context(), handleSDF); err != nil || size != 64*mebibyte {
		t.Errorf("size %d (%v)", size, err)
	}
	s.wantFile("file", "kept")
	s.wantMounted(true)
	s.unstage(handleSDF)
	s.wantMounted(false)
	m.must(s.stageNodeLocal(volumeA, false))
	s.wantFile("file", "kept")
	s.unstage(handleSDF)

	first.unplug()
	m.plug("nvme2n1", volumeB, 64*mebibyte)
	m.must(s.stageNodeLocal(volumeB, false))
	if _, err := os.Stat(filepath.Join(s.path, "file")); err == nil {
		t.Error("the second volume has the file of the first")
	}
	s.unstage(handleSDF)
	s.wantMounted(false)
}

func TestNodeLocal_stagesARawBlockVolume(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	m.must(s.stageNodeLocal(volumeA, true))
	if devices, err := s.engineDevices(); err != nil || len(devices) != 1 {
		t.Errorf("devices %v (%v)", devices, err)
	}
	s.unstage(handleSDF)
}

// engineDevices are the devices that the handle means to a new process.
func (s *staging) engineDevices() ([]backend.Device, error) {
	return s.machine.node().Devices(s.t.Context(), handleSDF)
}

// A raw block user writes what it likes. A mark of an mkfs that was interrupted before,
// under the volume's own ID, must not let a later stage format the volume again.
func TestNodeLocal_forgetsAnInterruptedFormat(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	n := m.node()
	m.must(n.SetFormatMark(t.Context(), volumeA, backend.FormatMark{FSType: "ext4"}))
	s := newStaging(m, n)
	m.must(s.stageNodeLocal(volumeA, true))
	s.unstage(handleSDF)
	if mark, err := n.FormatMark(t.Context(), volumeA); err != nil || mark != (backend.FormatMark{}) {
		t.Errorf("the mark is %+v (%v); want none", mark, err)
	}
}

func TestNodeLocal_refusesARequestWithoutTheVolume(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	for _, id := range []string{"", "vol-1", handleSDF, "../x"} {
		if err := s.stageNodeLocal(id, false); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	s.wantMounted(false)
	stateless := newStaging(m, m.node(func(o *Options) { o.StateDir = "" }))
	if err := stateless.stageNodeLocal(volumeA, false); !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("without a state directory: %v", err)
	}
}

// A record of an earlier boot is removed at the start of the process.
func TestNodeLocal_recordsEndWithTheBoot(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, 64*mebibyte)
	s := newStaging(m, m.node())
	m.must(s.stageNodeLocal(volumeA, false))
	s.unstage(handleSDF)
	name := filepath.Join(m.state, "sdf"+aliasSuffix)
	m.node()
	if _, err := os.Stat(name); err != nil {
		t.Errorf("the record of this boot: %v", err)
	}
	m.must(os.WriteFile(name, []byte(`{"version":1,"disk":{"boot":"other","number":0},"volume":"`+volumeA+`"}`), 0o600))
	m.node()
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of an earlier boot: %v", err)
	}
}
