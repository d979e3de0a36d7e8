package nodeside

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// crashVariable has a child of the test do a crashStep, in which it is killed.
const crashVariable = "HOLDFAST_TEST_EBS_CRASH"

// crashStep is a call on a machine that is there already.
type crashStep struct{ Dir, FSType, Call string }

// duringMkfs is a point that the engine does not have: mkfs is killed with it.
const duringMkfs = "during mkfs"

// crashPoint is where a process dies: in which call, and whether the filesystem
// was recorded as made by then, so that it may not be made again.
type crashPoint struct {
	call, name string
	made       bool
}

func crashPoints() []crashPoint {
	return []crashPoint{
		{"stage", "node/stage/device", false},
		{"stage", "node/stage/marked", false},
		{"stage", duringMkfs, false},
		{"stage", "node/stage/formatted", false},
		{"stage", "node/stage/recorded", true}, // between mkfs and mount
		{"stage", "node/stage/mounted", true},
		{"stage", "node/stage/ready", true},
		{"stage", "node/stage/attached", true}, // after mount, before the reply
		{"unstage", "node/unstage/unmounted", true},
		{"unstage", "node/unstage/cleared", true},
		{"unstage", "node/unstage/closed", true},
	}
}

// The node process is killed at each step of staging a volume. The next one on the same
// machine has the mount table, the devices and the format mark. The repeated call carries
// out the remaining steps, and repeats none.
func TestRecovery_ofANodeThatIsKilled(t *testing.T) {
	if step := os.Getenv(crashVariable); step != "" {
		doCrashStep(t, step)
		return
	}
	for fsType, size := range map[string]int64{"ext4": 64 * mebibyte, "xfs": 320 * mebibyte} {
		for _, point := range crashPoints() {
			t.Run(fsType+" "+strings.ReplaceAll(point.name, "/", "-"), func(t *testing.T) {
				m := newMachine(t)
				m.plug("nvme1n1", volumeA, size)
				if point.call == "unstage" {
					s, _ := m.counted(nil)
					m.must(s.stage(volumeA, fsType, nil))
					m.must(os.WriteFile(filepath.Join(s.path, "file"), []byte("kept"), 0o600))
				}
				m.killAt(point, fsType)
				m.repeat(point, fsType)
			})
		}
	}
}

// repeat repeats the call that a process died in, in the next process, and continues.
func (m *machine) repeat(point crashPoint, fsType string) {
	m.t.Helper()
	s, makes := m.counted(nil)
	if point.call == "unstage" {
		s.unstage(volumeA)
	}
	for range 2 {
		m.must(s.stage(volumeA, fsType, nil))
	}
	if point.call == "unstage" {
		s.wantFile("file", "kept")
	}
	most := int64(1)
	if point.made {
		most = 0
	}
	if n := makes.Load(); n > most {
		m.t.Errorf("the filesystem was made %d times after the crash; want at most %d", n, most)
	}
	m.must(os.WriteFile(filepath.Join(s.path, "after"), nil, 0o600))
	s.unstage(volumeA)
	s.unstage(volumeA)
}

// counted is a new process on the machine, and the number of filesystems that it made.
func (m *machine) counted(points *failpoint.Set) (*staging, *atomic.Int64) {
	m.t.Helper()
	c := &makeCounter{Runner: command.NewSystem()}
	return newStaging(m, m.node(), func(o *node.Options) { o.Runner, o.Failpoints = c, points }), &c.made
}

type makeCounter struct {
	command.Runner
	made atomic.Int64
}

// Run implements command.Runner.
func (m *makeCounter) Run(ctx context.Context, c command.Command) (command.Result, error) {
	if strings.HasPrefix(c.Name, "mkfs") {
		m.made.Add(1)
	}
	return m.Runner.Run(ctx, c)
}

// killAt has a child do a call and die in it.
func (m *machine) killAt(point crashPoint, fsType string) {
	m.t.Helper()
	encoded, err := json.Marshal(crashStep{Dir: m.dir, FSType: fsType, Call: point.call})
	m.must(err)
	child := exec.Command(os.Args[0], "-test.run", "^TestRecovery_ofANodeThatIsKilled$")
	child.Env = append(os.Environ(), crashVariable+"="+string(encoded), failpoint.TermsVariable+"="+point.name+"=kill")
	output, err := child.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return
		}
	}
	m.t.Fatalf("the child was not killed: %v: %s", err, output)
}

// doCrashStep is what the child does.
func doCrashStep(t *testing.T, text string) {
	t.Helper()
	var step crashStep
	if err := json.Unmarshal([]byte(text), &step); err != nil {
		t.Fatal(err)
	}
	points, err := failpoint.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: step.Dir, sys: filepath.Join(step.Dir, "sys"), dev: filepath.Join(step.Dir, "dev"), state: filepath.Join(step.Dir, "state")}
	s := newStaging(m, m.node(), func(o *node.Options) { o.Runner, o.Failpoints = halfMaker{command.NewSystem(), points}, points })
	if step.Call == "unstage" {
		s.unstage(volumeA)
		return
	}
	m.must(s.stage(volumeA, step.FSType, nil))
}

// halfMaker passes the point duringMkfs with a filesystem that is half made: all
// is there but the first superblock, which mkfs writes last.
type halfMaker struct {
	command.Runner
	points *failpoint.Set
}

// Run implements command.Runner.
func (h halfMaker) Run(ctx context.Context, c command.Command) (command.Result, error) {
	result, err := h.Runner.Run(ctx, c)
	terms := os.Getenv(failpoint.TermsVariable)
	if err != nil || !strings.HasPrefix(c.Name, "mkfs") || !strings.HasPrefix(terms, duringMkfs) {
		return result, err
	}
	if err := eraseStart(c.Args[len(c.Args)-1]); err != nil {
		return result, err
	}
	return result, h.points.Hit(duringMkfs)
}

// eraseStart writes zeros over where the superblocks of ext4 and xfs are.
func eraseStart(device string) error {
	file, err := os.OpenFile(device, os.O_WRONLY|syscall.O_SYNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(make([]byte, 4096), 0)
	return errors.Join(err, file.Close())
}
