package windows

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// raced is a call during which, at any step, the volume's disk is removed and another disk,
// which was arranged before, gets its number.
type raced struct {
	name          string
	arrange, call func(m *machine) error
}

func racedCalls() []raced {
	unstage := func(m *machine) error { return m.engine.Unstage(m.t.Context(), volA, stagingA) }
	return []raced{
		{"stage next to a blank disk", func(*machine) error { return nil }, stageStep},
		{"stage again next to a blank disk", func(m *machine) error { return errors.Join(stageStep(m), unstage(m)) }, stageStep},
		{"stage next to a disk in use", (*machine).useB, stageStep},
		{"unstage next to a disk in use", func(m *machine) error { return errors.Join(m.useB(), stageStep(m)) }, unstage},
		{"expand next to a disk that could grow", func(m *machine) error {
			err := errors.Join(m.useB(), stageStep(m))
			return errors.Join(err, m.GrowDisk(m.numberOf(volA), 2*gibibyte), m.GrowDisk(m.numberOf(volB), 2*gibibyte))
		}, func(m *machine) error {
			_, err := m.engine.Expand(m.t.Context(), node.ExpandRequest{
				VolumeID: volA, VolumePath: stagingA, Range: backend.SizeRange{Required: 2 * gibibyte},
			})
			return err
		}},
	}
}

// useB stages the other disk, writes to it and closes its files.
func (m *machine) useB() error {
	err := m.engine.Stage(m.t.Context(), stageOf(volB, stagingB))
	if err != nil {
		return err
	}
	err = m.WriteFile(stagingB+`\data`, 4096)
	for _, volume := range m.diskOf(volB).Volumes {
		err = errors.Join(err, m.engine.host.Volumes.Flush(m.t.Context(), volume.Name))
	}
	return err
}

func (m *machine) diskOf(serial string) windows.StateDisk {
	m.t.Helper()
	number := m.numberOf(serial)
	for _, disk := range m.State().Disks {
		if disk.Number == number {
			return disk
		}
	}
	m.t.Fatalf("no disk %d", number)
	return windows.StateDisk{}
}

// A disk number may be assigned to another disk at any call of Windows. That disk
// must stay unchanged, blank or in use.
func TestSimulated_changesNoDiskThatGotTheNumber(t *testing.T) {
	for _, r := range racedCalls() {
		for i, n := range r.calls(t) {
			if !testing.Short() || i%4 == 0 { // some of the calls
				r.at(t, n)
			}
		}
	}
}

// calls are the numbers of the calls of Windows at which the disks are swapped.
func (r raced) calls(t *testing.T) (at []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.attach(volA)
		m.attach(volB)
		m.must(r.arrange(m))
		stop := m.Record()
		m.must(r.call(m))
		at = windows.Sweep(stop())
	})
	return at
}

// at swaps the disks at the nth call of Windows.
func (r raced) at(t *testing.T, n int) {
	t.Helper()
	t.Run(fmt.Sprintf("%s %d", r.name, n), func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t)
			m.attach(volA)
			m.attach(volB)
			m.must(r.arrange(m))
			var mu sync.Mutex // some calls run concurrently
			var before windows.StateDisk
			calls := 0
			remove := m.Hook(func(c windows.Call) {
				mu.Lock()
				defer mu.Unlock()
				// Any caller may read the disk's size, which changes nothing.
				if calls++; calls > n && c.Changes && c.Matches("", volB) && c.Name != win32.IoctlDiskUpdateProperties.String() {
					t.Errorf("the other disk got %s", c.Name)
				}
				if calls == n {
					before = m.swapNumber()
				}
			})
			err := r.call(m)
			remove()
			if calls < n { // some calls run concurrently, and their number varies
				return
			}
			if diff := cmp.Diff(before, m.diskOf(volB)); diff != "" {
				t.Errorf("answered %v, and changed the other disk (-before +after):\n%s", err, diff)
			}
			m.sound()
		})
	})
}

// swapNumber removes the volume's disk and assigns its number to the other disk.
func (m *machine) swapNumber() windows.StateDisk {
	number := m.numberOf(volA)
	m.must(m.RemoveDisk(number))
	if moved, err := m.MoveDisk(m.numberOf(volB)); err != nil || moved != number {
		m.t.Errorf("the other disk became %d, not %d: %v", moved, number, err)
	}
	return m.diskOf(volB)
}
