package nodeside

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

var interrupted = backend.FormatMark{FSType: "ext4"}

func (m *machine) wantMark(n *Node, volume string, want backend.FormatMark) {
	m.t.Helper()
	if got, err := n.FormatMark(m.t.Context(), volume); err != nil || got != want {
		m.t.Fatalf("mark %+v, %v; want %+v", got, err, want)
	}
}

// reattach makes the disk appear again with the same data, as after detaching and attaching.
func (p *plugged) reattach() {
	p.m.t.Helper()
	p.unplug()
	p.m.must(p.loop.Detach())
	loop, err := blockdev.AttachLoop(p.m.t.Context(), blockdev.LoopConfig{File: p.file, Path: p.file.Name()})
	p.m.must(err)
	p.m.must(loop.Close())
	p.loop = loop
	p.m.attributes(p.name, map[string]string{"device/serial": "vol0123456789abcdef0", "device/model": AmazonModel, "dev": numberText(loop.Number)})
	p.makeNode()
}

func TestFormatMark_isValidOnlyInItsAttachment(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, mebibyte)
	n := m.node()
	m.must(m.open(n, volumeA).Release())
	m.wantMark(n, volumeA, backend.FormatMark{})
	for _, mark := range []backend.FormatMark{interrupted, {FSType: "ext4", Done: true}, {}, interrupted} {
		m.must(n.SetFormatMark(t.Context(), volumeA, mark))
		m.wantMark(n, volumeA, mark)
		m.wantMark(m.node(), volumeA, mark) // after a restart
	}
	// Unstaged and staged again, it is the same attachment still: an mkfs that
	// was interrupted is formatted again.
	m.must(n.CloseDevice(t.Context(), volumeA))
	m.must(m.open(n, volumeA).Release())
	m.wantMark(n, volumeA, interrupted)
	disk.reattach()
	m.wantMark(n, volumeA, backend.FormatMark{})
	m.wantMark(m.node(), volumeA, backend.FormatMark{})
}

func TestFormatMark_isVoidAfterAReboot(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, mebibyte)
	n := m.node()
	m.must(m.open(n, volumeA).Release())
	m.must(n.SetFormatMark(t.Context(), volumeA, interrupted))
	path := filepath.Join(m.state, volumeA+markSuffix)
	data, err := os.ReadFile(path)
	m.must(err)
	m.must(os.WriteFile(path, bytes.Replace(data, []byte(n.records.boot), []byte(strings.Repeat("0", 36)), 1), 0o600))
	m.wantMark(n, volumeA, backend.FormatMark{})
}

func TestFormatMark_isVoidWhenItCannotBeRead(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme1n1", volumeA, mebibyte)
	n := m.node()
	for _, content := range []string{"", "{", `{"version":99,"fsType":"ext4"}`} {
		m.must(os.MkdirAll(m.state, 0o700))
		m.must(os.WriteFile(filepath.Join(m.state, volumeA+markSuffix), []byte(content), 0o600))
		m.wantMark(n, volumeA, backend.FormatMark{})
	}
}

func TestSetFormatMark_needsTheDisk(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	if err := n.SetFormatMark(t.Context(), volumeA, interrupted); !errors.Is(err, backend.ErrPrecondition) {
		t.Fatal(err)
	}
	m.must(n.SetFormatMark(t.Context(), volumeA, backend.FormatMark{}))
	m.must(m.node(func(o *Options) { o.StateDir = "" }).SetFormatMark(t.Context(), volumeA, backend.FormatMark{}))
}

// A mark of an earlier attachment may say that only mkfs has written to the volume,
// which would then be formatted. Such a mark is void, so unknown data is rejected.
func TestEngine_neverFormatsByAMarkOfAnotherAttachment(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 64*mebibyte)
	n := m.node()
	s := newStaging(m, n)
	m.must(m.open(n, volumeA).Release())
	m.must(n.SetFormatMark(t.Context(), volumeA, interrupted))
	m.must(n.CloseDevice(t.Context(), volumeA))
	disk.reattach()
	data := bytes.Repeat([]byte("data of another machine "), 1000)
	_, err := disk.file.WriteAt(data, 0)
	m.must(err)
	if err := s.stage(volumeA, "ext4", nil); !errors.Is(err, backend.ErrPrecondition) {
		t.Fatalf("staged unknown data: %v", err)
	}
	after := make([]byte, len(data))
	_, err = disk.file.ReadAt(after, 0)
	if m.must(err); !bytes.Equal(after, data) {
		t.Fatal("the data is gone")
	}
}

// In the same attachment the mark is right: what an interrupted mkfs left is
// written over.
func TestEngine_repeatsAnInterruptedFormat(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 64*mebibyte)
	n := m.node()
	s := newStaging(m, n)
	m.must(m.open(n, volumeA).Release())
	m.must(n.SetFormatMark(t.Context(), volumeA, interrupted))
	_, err := disk.file.WriteAt([]byte("half of a filesystem"), 4096)
	m.must(err)
	m.must(s.stage(volumeA, "ext4", nil))
	m.wantMark(n, volumeA, backend.FormatMark{FSType: "ext4", Done: true})
	s.unstage(volumeA)
}

func TestNew_forgetsVolumesThatAreGone(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, mebibyte)
	m.plug("nvme2n1", volumeB, mebibyte)
	n := m.node()
	for _, id := range []string{volumeA, volumeB} {
		m.must(m.open(n, id).Release())
		m.must(n.SetFormatMark(t.Context(), id, interrupted))
	}
	disk.unplug()
	m.node()
	entries, err := os.ReadDir(m.state)
	m.must(err)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), volumeA) {
			t.Errorf("%s is left", entry.Name())
		}
	}
	if len(entries) != 2 {
		t.Errorf("%v", entries)
	}
}
