package node

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// blockUse is the model's state of one pod with the volume.
type blockUse struct {
	readOnly bool
	file     *os.File // open as long as the pod has the volume, as a database would
}

// blockModel is a raw block volume of several pods of one node: all of them read the
// last write, and a reader cannot write.
type blockModel struct {
	*fixture
	staged bool
	pods   map[string]*blockUse
	writes byte // the last value written
}

// TestBlock_randomPublishing compares the node engine with the model. The pods
// keep the device open and read it with the page cache, where a second device
// of the volume would show stale data.
func TestBlock_randomPublishing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &blockModel{fixture: newFixture(t), pods: map[string]*blockUse{}}
		m.backend.add(t, "vol-a", mebibyte)
		defer m.end()
		rt.Repeat(map[string]func(*rapid.T){
			"stage":     func(*rapid.T) { m.must(m.stage("vol-a", block())); m.staged = true },
			"unstage":   m.unstageRandomly,
			"publish":   m.publishRandomly,
			"unpublish": m.unpublishRandomly,
			"write":     m.writeRandomly,
			"restart": func(*rapid.T) {
				m.engine = newEngine(t, Options{Backend: m.backend, KubeletDir: m.kubelet, Runner: m.runner, Traits: backend.Traits{Block: true}})
			},
			"": m.check,
		})
	})
}

func drawPod(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod") }

// conflicts reports whether a pod other than the named one has the other access.
func (m *blockModel) conflicts(name string, readOnly bool) bool {
	for other, use := range m.pods {
		if other != name && use.readOnly != readOnly {
			return true
		}
	}
	return false
}

func (m *blockModel) publishRandomly(t *rapid.T) {
	pod, readOnly := drawPod(t), rapid.Bool().Draw(t, "readOnly")
	err := m.publish("vol-a", pod, block(), readOnly)
	have := m.pods[pod]
	switch {
	case !m.staged:
		m.wantError(err, backend.ErrPrecondition)
	case have != nil && have.readOnly != readOnly:
		m.wantError(err, backend.ErrExists)
	case have == nil && m.conflicts(pod, readOnly):
		m.wantError(err, backend.ErrPrecondition)
	default:
		m.must(err)
		if have == nil {
			m.pods[pod] = &blockUse{readOnly: readOnly, file: m.openDevice(pod, readOnly)}
		}
	}
}

func (m *blockModel) openDevice(pod string, readOnly bool) *os.File {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	file, err := os.OpenFile(m.target("vol-a", pod), flags, 0)
	m.must(err)
	return file
}

func (m *blockModel) unpublishRandomly(t *rapid.T) { m.unpublishPod(drawPod(t)) }

func (m *blockModel) unpublishPod(pod string) {
	if use := m.pods[pod]; use != nil {
		m.must(use.file.Close())
		delete(m.pods, pod)
	}
	m.must(m.unpublish("vol-a", pod))
}

func (m *blockModel) unstageRandomly(*rapid.T) {
	err := m.unstage("vol-a")
	if len(m.pods) > 0 {
		m.wantError(err, backend.ErrInUse)
		return
	}
	m.must(err)
	m.staged = false
}

func (m *blockModel) writeRandomly(t *rapid.T) {
	use := m.pods[drawPod(t)]
	if use == nil || use.readOnly {
		return
	}
	m.writes++
	_, err := use.file.WriteAt([]byte{m.writes}, 0)
	m.must(errors.Join(err, use.file.Sync()))
}

func (m *blockModel) check(t *rapid.T) {
	for pod, use := range m.pods {
		got := []byte{0}
		_, err := use.file.ReadAt(got, 0)
		m.must(err)
		if got[0] != m.writes {
			t.Fatalf("pod %s (read-only = %t) reads %d; the last write was %d", pod, use.readOnly, got[0], m.writes)
		}
		if use.readOnly {
			m.must(m.refusesWrites(pod))
		}
	}
	devices, err := m.backend.Devices(m.t.Context(), "vol-a")
	m.must(err)
	if most := 1; len(devices) > most || (m.staged && len(devices) != 1) {
		t.Fatalf("%d devices of one volume, staged = %t", len(devices), m.staged)
	}
}

// refusesWrites tries to write through a reader's device node.
func (m *blockModel) refusesWrites(pod string) error {
	file, err := os.OpenFile(m.target("vol-a", pod), os.O_WRONLY, 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte{m.writes ^ 0xff}, 0)
	if err == nil {
		err = file.Sync()
	}
	closeQuietly(file)
	if err == nil {
		return fmt.Errorf("pod %s wrote through its read-only device", pod)
	}
	return nil
}

// end takes the volume away, so that the next run begins with none.
func (m *blockModel) end() {
	for _, pod := range []string{"a", "b", "c"} {
		m.unpublishPod(pod)
	}
	m.must(m.unstage("vol-a"))
	devices, err := m.backend.Devices(m.t.Context(), "vol-a")
	if err != nil || len(devices) != 0 {
		m.t.Fatalf("left devices %+v, %v", devices, err)
	}
}
