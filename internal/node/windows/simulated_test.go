package windows

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// The sizes are small for NTFS and large for the simulation.
const gibibyte = 1 << 30

// machine is the node engine over the proxy's host over a simulated Windows.
type machine struct {
	t *testing.T
	*windows.Machine
	engine *Engine
	state  string // the proxy's directory, which outlives its processes
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return newMachineWith(t, windows.Options{})
}

func newMachineWith(t *testing.T, o windows.Options) *machine {
	t.Helper()
	m := &machine{t: t, Machine: windows.New(o), state: winetest.Dir(t)}
	m.must(m.MkdirAll(kubeletDir))
	m.start()
	return m
}

// start makes the processes that work on the machine, as after a crash.
func (m *machine) start() {
	m.t.Helper()
	m.EndProcesses()
	rules, err := paths.New(kubeletDir)
	m.must(err)
	h, err := host.New(host.Options{Machine: m.Calls(), Rules: rules, StateDir: m.state})
	m.must(err)
	m.t.Cleanup(h.Close)
	m.engine, err = New(Options{
		Host: h.API(), Backend: bySerial{}, KubeletDir: kubeletDir, Driver: driver,
		Wait: 200 * time.Millisecond, PollInterval: time.Millisecond,
	})
	m.must(err)
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) attach(serial string) uint32 {
	m.t.Helper()
	number, err := m.AddDisk(windows.DiskSpec{Serial: serial, Size: gibibyte, Bus: win32.BusSAS, Offline: true, ReadOnly: true})
	m.must(err)
	return number
}

// numberOf is the number of the disk with a serial number.
func (m *machine) numberOf(serial string) uint32 {
	m.t.Helper()
	for _, disk := range m.State().Disks {
		if strings.TrimSpace(disk.Serial) == serial {
			return disk.Number
		}
	}
	m.t.Fatalf("no disk %s", serial)
	return 0
}

// sound checks that the machine is whole and that nothing was destroyed.
func (m *machine) sound() {
	m.t.Helper()
	m.must(m.Check())
	if lost := m.Losses(); len(lost) > 0 {
		m.t.Fatalf("destroyed: %v", lost)
	}
}

const dataFile = stagingA + `\data`

// step is one call of the orchestrator, with events before and after it.
type step struct {
	name   string
	before func(m *machine)
	call   func(m *machine) error
	after  func(m *machine)
}

func stageStep(m *machine) error { return m.engine.Stage(m.t.Context(), stageOf(volA, stagingA)) }

// life runs a volume's calls from stage to unstage, and again after another attachment.
func life() []step {
	return []step{
		{"stage", func(m *machine) { m.attach(volA); m.attach(volB) }, stageStep, func(m *machine) { m.must(m.WriteFile(dataFile, 4096)) }},
		{"publish", nil, func(m *machine) error { return m.engine.Publish(m.t.Context(), publishOf(volA, stagingA, targetA)) },
			func(m *machine) {
				if !m.Exists(targetA + `\data`) {
					m.t.Error("the pod does not see the volume")
				}
			}},
		{"expand", func(m *machine) { m.must(m.GrowDisk(m.numberOf(volA), 2*gibibyte)) },
			func(m *machine) error {
				size, err := m.engine.Expand(m.t.Context(), node.ExpandRequest{
					VolumeID: volA, VolumePath: targetA, Range: backend.SizeRange{Required: 2 * gibibyte},
				})
				if err == nil && size != 2*gibibyte {
					err = fmt.Errorf("it has %d bytes", size)
				}
				return err
			}, func(m *machine) {
				stats, err := m.engine.Stats(m.t.Context(), volA, targetA, "")
				if err != nil || stats.Bytes.Total < 2*gibibyte*9/10 {
					m.t.Errorf("after the growth: %+v, %v", stats, err)
				}
			}},
		{"unpublish", nil, func(m *machine) error { return m.engine.Unpublish(m.t.Context(), volA, targetA) },
			func(m *machine) {
				if m.Exists(targetA) || !m.Exists(dataFile) {
					m.t.Error("the link still exists, or more is gone than it")
				}
			}},
		{"unstage", nil, func(m *machine) error { return m.engine.Unstage(m.t.Context(), volA, stagingA) }, (*machine).wantOffline},
		{"restage", func(m *machine) {
			m.must(m.RemoveDisk(m.numberOf(volB)))
			_, err := m.MoveDisk(m.numberOf(volA))
			m.must(err)
		}, stageStep, func(m *machine) {
			if !m.Exists(dataFile) {
				m.t.Error("the file did not survive")
			}
		}},
	}
}

func (m *machine) wantOffline() {
	m.t.Helper()
	if m.Exists(stagingA) {
		m.t.Error("the staging directory still exists")
	}
	for _, disk := range m.State().Disks {
		if strings.TrimSpace(disk.Serial) == volA && disk.Online {
			m.t.Error("the disk is still online")
		}
	}
}

func (m *machine) do(s step) {
	m.t.Helper()
	if s.before != nil {
		s.before(m)
	}
	for range 2 {
		if err := s.call(m); err != nil {
			m.t.Fatalf("%s: %v", s.name, err)
		}
	}
	s.finish(m)
}

func (s step) finish(m *machine) {
	m.t.Helper()
	if s.after != nil {
		s.after(m)
	}
	m.sound()
}

// The node calls over the proxy's own code, on a simulated machine.
func TestSimulated_theWholeWayOfAVolume(t *testing.T) {
	m := newMachine(t)
	for _, s := range life() {
		m.do(s)
	}
}

// Windows may be slow to see that a table can have more of a disk that has grown,
// as after a restore into a larger one. The data are given out meanwhile, and the
// call for growth reports that the volume has not grown yet.
func TestSimulated_stagesAVolumeThatCannotGrowYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachineWith(t, windows.Options{UsableLag: 1 << 20})
		steps := life()
		m.do(steps[0])
		m.must(m.engine.Unstage(t.Context(), volA, stagingA))
		m.must(m.GrowDisk(m.numberOf(volA), 2*gibibyte))
		m.must(stageStep(m))
		if !m.Exists(dataFile) {
			t.Error("the file is not there")
		}
		_, err := m.engine.Expand(t.Context(), node.ExpandRequest{
			VolumeID: volA, VolumePath: stagingA, Range: backend.SizeRange{Required: 2 * gibibyte},
		})
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("growth: %v", err)
		}
		m.sound()
	})
}

// The process dies before or after each call of Windows that changes something,
// of each call of the orchestrator; the next process repeats that call and goes
// on. Nothing is lost, and nothing is left.
func TestSimulated_convergesAfterADeathAtEveryCall(t *testing.T) {
	for at, s := range life() {
		for _, action := range []windows.Action{windows.DieBefore, windows.DieAfter} {
			for n := 1; dieAt(t, at, s, action, n); n++ {
			}
		}
	}
}

// dieAt is false when the step makes fewer calls.
func dieAt(t *testing.T, at int, dying step, action windows.Action, n int) (died bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%s %s %d", dying.name, action, n), func(t *testing.T) {
		m := newMachine(t)
		steps := life()
		for _, s := range steps[:at] {
			m.do(s)
		}
		if dying.before != nil {
			dying.before(m)
		}
		fault := m.Inject(windows.Fault{Changing: true, At: n, Times: 1, Action: action})
		err := dying.call(m)
		if died = fault.Hits() > 0; died && err == nil && action == windows.DieBefore {
			t.Error("the call succeeded in a process that had died")
		}
		fault.Remove()
		m.start()
		for range 2 {
			m.must(dying.call(m))
		}
		dying.finish(m)
		for _, s := range steps[at+1:] {
			m.do(s)
		}
	})
	return died
}

// A call of Windows that fails, or says that it did what it did not, makes
// the step an error and not a false success; the repeated step finishes.
func TestSimulated_noticesEveryFailureAndFalseSuccess(t *testing.T) {
	for at, s := range life() {
		for _, action := range []windows.Action{windows.Fail, windows.Pretend} {
			for n := 1; failAt(t, at, s, action, n); n++ {
			}
		}
	}
}

// inBubble runs a test on a clock that waits for nothing.
func inBubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

func failAt(t *testing.T, at int, failing step, action windows.Action, n int) (hit bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%s %s %d", failing.name, action, n), inBubble(func(t *testing.T) {
		m := newMachine(t)
		steps := life()
		for _, s := range steps[:at] {
			m.do(s)
		}
		if failing.before != nil {
			failing.before(m)
		}
		fault := m.Inject(windows.Fault{Changing: true, At: n, Times: 1, Action: action, Errno: win32.ErrorGenFailure})
		err := failing.call(m)
		hit = fault.Hits() > 0
		fault.Remove()
		if err == nil { // then it has done all the same
			failing.finish(m)
		}
		for range 2 {
			m.must(failing.call(m))
		}
		failing.finish(m)
		for _, s := range steps[at+1:] {
			m.do(s)
		}
	}))
	return hit
}

// A disk with data of any form is not changed.
func TestSimulated_destroysNothing(t *testing.T) {
	for what, spec := range map[string]windows.DiskSpec{
		"data without partitions": {Noise: true},
		"data at the end":         {Bytes: map[int64][]byte{gibibyte - 512: {1}}},
		"data in an empty GPT":    {Style: "gpt", Bytes: map[int64][]byte{17 << 20: {1, 2, 3}}},
		"a FAT32":                 {Style: "data", FileSystem: "FAT32"},
		"a damaged filesystem":    {Style: "data", Noise: true},
		"a copy of a superblock":  {Bytes: map[int64][]byte{5<<27 + 56: {0x53, 0xef}}},
		"files in a partition":    {Style: "data", Bytes: map[int64][]byte{333<<20 + 1: bytes.Repeat([]byte("text"), 1<<19)}},
	} {
		m := newMachine(t)
		spec.Serial, spec.Size, spec.Bus = volA, gibibyte, win32.BusSAS
		_, err := m.AddDisk(spec)
		m.must(err)
		if err := stageStep(m); !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("%s: %v", what, err)
		}
		m.sound()
	}
}

// A partition with a filesystem that another driver of EBS made is used, and
// grows to its disk.
func TestSimulated_takesOverWhatAnotherDriverMade(t *testing.T) {
	m := newMachine(t)
	_, err := m.AddDisk(windows.DiskSpec{Serial: volA, Size: gibibyte, Bus: win32.BusSAS, Offline: true, Style: "data",
		FileSystem: "NTFS", DataSize: gibibyte / 2})
	m.must(err)
	m.must(stageStep(m))
	stats, err := m.engine.Stats(t.Context(), volA, stagingA, "")
	if err != nil || stats.Bytes.Total < gibibyte*9/10 {
		t.Errorf("%+v, %v", stats, err)
	}
	m.sound()
}

// A volume with an open file is not taken offline under a writer.
func TestSimulated_unstageWaitsForOpenFiles(t *testing.T) { inBubble(unstageWaitsForOpenFiles)(t) }

func unstageWaitsForOpenFiles(t *testing.T) {
	m := newMachine(t)
	m.attach(volA)
	m.must(stageStep(m))
	m.must(m.WriteFile(dataFile, 10))
	file, err := m.Open(dataFile, false)
	m.must(err)
	if err := m.engine.Unstage(t.Context(), volA, stagingA); !errors.Is(err, backend.ErrInUse) {
		t.Errorf("%v; want in use", err)
	}
	file.Close()
	m.must(m.engine.Unstage(t.Context(), volA, stagingA))
	m.wantOffline()
	m.sound()
}

// Disk numbers change when the machine restarts; the engine reads them again.
func TestSimulated_afterAReboot(t *testing.T) {
	m := newMachine(t)
	m.attach(volB)
	m.attach(volA)
	for _, s := range life()[1:2] {
		m.must(stageStep(m))
		m.must(m.WriteFile(dataFile, 10))
		m.do(s)
	}
	m.Reboot()
	m.start()
	for _, s := range life()[1:] {
		m.do(s)
	}
}

// A disk that does not answer may be the volume's: until it says what it is, the
// volume is not unstaged, since the repeated call would find no staging directory
// and leave the disk online.
func TestSimulated_unstageLeavesNoDiskOnlineAfterAFailure(t *testing.T) {
	for _, call := range []string{"Devices.OpenInterface", "IOCTL_STORAGE_GET_DEVICE_NUMBER", "IOCTL_STORAGE_QUERY_PROPERTY", "IOCTL_DISK_GET_DISK_ATTRIBUTES"} {
		hits := 1
		for n := 1; hits > 0; n++ {
			t.Run(fmt.Sprintf("%s %d", call, n), func(t *testing.T) {
				m := newMachine(t)
				m.attach(volA)
				m.must(stageStep(m))
				m.start() // a process that has seen no disk yet
				fault := m.Inject(windows.Fault{Call: call, Target: volA, At: n, Times: 2, Action: windows.Fail, Errno: win32.ErrorGenFailure})
				err := m.engine.Unstage(t.Context(), volA, stagingA)
				hits = fault.Hits()
				fault.Remove()
				if err != nil {
					m.must(m.engine.Unstage(t.Context(), volA, stagingA))
				}
				m.wantOffline()
				m.sound()
			})
		}
	}
}

// The process dies when the disk is online and nothing is mounted yet, and the
// orchestrator does not repeat the call but undoes it.
func TestSimulated_unstageUndoesAStageThatDied(t *testing.T) {
	for n, hits := 1, 1; hits > 0; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newMachine(t)
			m.attach(volA)
			fault := m.Inject(windows.Fault{Changing: true, At: n, Times: 1, Action: windows.DieAfter})
			_ = stageStep(m)
			hits = fault.Hits()
			fault.Remove()
			m.start()
			m.must(m.engine.Unstage(t.Context(), volA, stagingA))
			m.wantOffline()
			m.sound()
		})
	}
}

// The process dies while it stages a volume at a path that another volume was to
// be staged at, too. The other volume is unstaged first, which removes the
// directory, by a process that may die as well.
func TestSimulated_unstageUndoesAStageThatDiedAtASharedPath(t *testing.T) {
	unstage := func(m *machine, serial string) error { return m.engine.Unstage(m.t.Context(), serial, stagingA) }
	unstageOther := func(m *machine) error {
		err := unstage(m, volB)
		if errors.Is(err, backend.ErrPrecondition) { // the first volume is mounted there
			return nil
		}
		return err
	}
	forEveryDeath(t, "stage", stageStep, func(t *testing.T, dyingStage death) {
		forEveryDeath(t, "unstage the other", unstageOther, func(t *testing.T, dyingUnstage death) {
			m := newMachine(t)
			m.attach(volA)
			m.attach(volB)
			dyingStage(m)
			dyingUnstage(m)
			m.must(unstageOther(m))
			m.must(unstage(m, volA))
			m.must(unstage(m, volB))
			m.wantOffline()
			m.sound()
		})
	})
}

// A volume that is staged at two paths stays mounted at one of them while it is
// unstaged at the other, though the process died meanwhile.
func TestSimulated_unstageKeepsTheOtherPathAfterADeath(t *testing.T) {
	unstage := func(m *machine) error { return m.engine.Unstage(m.t.Context(), volA, stagingB) }
	forEveryDeath(t, "unstage", unstage, func(t *testing.T, dying death) {
		m := newMachine(t)
		m.attach(volA)
		m.must(m.engine.Stage(t.Context(), stageOf(volA, stagingB)))
		m.must(stageStep(m))
		m.must(m.WriteFile(dataFile, 10))
		dying(m)
		m.must(unstage(m))
		if !m.Exists(dataFile) || m.Exists(stagingB) {
			t.Error("the volume is not mounted at the path where it is staged, or the other path still exists")
		}
		m.must(m.engine.Unstage(t.Context(), volA, stagingA))
		m.wantOffline()
		m.sound()
	})
}

// death makes a call in a process that dies at one call of Windows, and starts the
// next process.
type death func(m *machine)

// forEveryDeath runs a test with a death before and after each call of Windows that
// changes something, and once with a restart after the call.
func forEveryDeath(t *testing.T, name string, call func(*machine) error, test func(*testing.T, death)) {
	t.Helper()
	for _, action := range []windows.Action{windows.DieBefore, windows.DieAfter} {
		for n, died := 1, true; died; n++ {
			died = false
			t.Run(fmt.Sprintf("%s %s %d", name, action, n), func(t *testing.T) {
				test(t, func(m *machine) {
					fault := m.Inject(windows.Fault{Changing: true, At: n, Times: 1, Action: action})
					err := call(m)
					hit := fault.Hits() > 0
					fault.Remove()
					if !hit && err != nil {
						m.t.Fatalf("%s: %v", name, err)
					}
					died = died || hit
					m.start()
				})
			})
		}
	}
}
