package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// crashVariable passes to a child of the test which directory, scenario and step it
// is to work on and to die in.
const crashVariable = "HOLDFAST_TEST_CRASH"

type crashStep struct {
	Dir      string
	Scenario string
	Step     int
}

// The process is killed at every point of every scenario. The next process
// recovers and repeats the call, as an orchestrator does, and the result is the
// same.
func TestEngine_convergesAfterAKillAtEveryPoint(t *testing.T) {
	if step := os.Getenv(crashVariable); step != "" {
		crash(t, step)
		return
	}
	if testing.Short() {
		t.Skip("a process per failpoint; the failures of the same points are tested without")
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			for step, points := range s.points(t) {
				for _, term := range terms(points, "kill") {
					t.Run(fmt.Sprintf("%d-%s", step, strings.ReplaceAll(term, "/", "-")), func(t *testing.T) { s.kill(t, step, term) })
				}
			}
		})
	}
}

// kill makes the steps up to the one in which a child is to die, which is then repeated
// twice.
func (s scenario) kill(t *testing.T, step int, term string) {
	t.Helper()
	f := s.start(t)
	for i, do := range s.steps {
		if i == step {
			s.runChild(f, i, term)
			f.must(f.engine.Recover(t.Context()))
			f.must(do(f))
		}
		f.must(do(f))
	}
	if s.name == "inline" {
		f.wantNothing()
	}
	nodetest.NoLeaks(t, f.dir)
}

// runChild makes one step in a separate process, which must be killed there.
func (s scenario) runChild(f *fixture, step int, term string) {
	f.t.Helper()
	encoded, err := json.Marshal(crashStep{Dir: f.dir, Scenario: s.name, Step: step})
	f.must(err)
	child := exec.Command(os.Args[0], "-test.run", "^TestEngine_convergesAfterAKillAtEveryPoint$")
	child.Env = append(os.Environ(), crashVariable+"="+string(encoded), failpoint.TermsVariable+"="+term, failpoint.TraceVariable+"=")
	output, err := child.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return
		}
	}
	f.t.Fatalf("the child was not killed: %v: %s", err, output)
}

// crash is the child's part.
func crash(t *testing.T, text string) {
	t.Helper()
	var step crashStep
	if err := json.Unmarshal([]byte(text), &step); err != nil {
		t.Fatal(err)
	}
	set, err := failpoint.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, dir: step.Dir, kubelet: filepath.Join(step.Dir, "kubelet"), runner: &counter{Runner: command.NewSystem()},
		backend: &fileBackend{dir: filepath.Join(step.Dir, "pool"), discard: true, size: 64 << 20}}
	f.engine = newEngine(t, Options{Backend: f.backend, KubeletDir: f.kubelet, Forbidden: []string{f.backend.dir}, Runner: f.runner,
		Failpoints: set, Traits: backend.Traits{Filesystems: []string{"ext4", "xfs", "btrfs"}, Block: true}})
	if err := f.engine.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios() {
		if s.name == step.Scenario {
			f.must(s.steps[step.Step](f))
		}
	}
}
