//go:build machine

package machine

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/test/binary"
)

var (
	seed  = flag.Uint64("machine.seed", 0, "of what is random; 0 is one of the time")
	keep  = flag.String("machine.keep", "", "`DIRECTORY` for the disks and logs, which then stay")
	suite = flag.String("machine.suite", "bookworm", "Debian `RELEASE` of the machine")
)

// patience is how long a boot or a wait on a machine may take. It is there for a
// machine that hangs: an emulated one on a busy computer takes minutes.
const patience = 30 * time.Minute

const (
	holdfastPath = "/usr/local/bin/holdfast"
	guestPath    = "/usr/local/sbin/machine-guest"
)

// lab is a machine of a test.
type lab struct {
	*Machine
	t      *testing.T
	random *rand.Rand
}

// newLab makes a machine, which is off, of the variant of the image.
func newLab(t *testing.T, variant string) *lab {
	t.Helper()
	return newLabOf(t, *suite, variant)
}

// newLabOf makes a machine of a Debian release that has what the variant needs. The
// arguments are the kernel's.
func newLabOf(t *testing.T, suite, variant string, arguments ...string) *lab {
	t.Helper()
	return newLabWith(t, suite, variant, Options{Arguments: arguments})
}

// newLabWith makes a machine with more options; their image, directory and files are made
// here.
func newLabWith(t *testing.T, suite, variant string, o Options) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test-machine")
	}
	chosen := *seed
	if chosen == 0 {
		chosen = uint64(time.Now().UnixNano()) //nolint:gosec // a seed
	}
	t.Logf("-machine.seed=%d", chosen)
	image, err := Image(t.Context(), suite, variant)
	if err != nil {
		t.Fatal(err)
	}
	o.Image, o.Directory = image, directory(t)
	o.Files = map[string]string{holdfastPath: build(t, "holdfast"), guestPath: build(t, "machine-guest")}
	m, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{Machine: m, t: t, random: rand.New(rand.NewPCG(chosen, 0))} //nolint:gosec // the seed repeats a run
	t.Cleanup(l.end)
	return l
}

// directory is one with a short path, for sockets.
func directory(t *testing.T) string {
	t.Helper()
	if *keep != "" {
		d := filepath.Join(*keep, strings.ReplaceAll(t.Name(), "/", "-"))
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d, err := os.MkdirTemp("", "hm") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func build(t *testing.T, name string) string {
	t.Helper()
	if name == "holdfast" {
		path, err := binary.Build(t.Context(), t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if built := os.Getenv("HOLDFAST_TEST_BIN"); built != "" {
		return filepath.Join(built, name)
	}
	path := filepath.Join(t.TempDir(), name)
	command := exec.Command("go", "build", "-o", path, "./guest")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return path
}

// end turns the machine off. If the test failed, it prints what the machine said.
func (l *lab) end() {
	if l.t.Failed() {
		l.collect()
	}
	if err := l.Close(); err != nil {
		l.t.Error(err)
	}
}

// collect logs the end of the journal and of the console.
func (l *lab) collect() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if l.power != nil {
		result, err := l.Run(ctx, "journalctl", "-b", "-n", "200", "--no-pager", "-o", "short-monotonic")
		l.t.Logf("the journal: %v\n%s", err, result.Stdout)
	}
	text, err := os.ReadFile(l.Console())
	l.t.Logf("the console: %v\n%s", err, text[max(0, len(text)-8<<10):])
}

func (l *lab) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.t.Context(), patience)
}

// must ends the test at an error of the machine.
func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// timed logs how long a step took.
func (l *lab) timed(name string, step func()) {
	l.t.Helper()
	began := time.Now()
	step()
	l.t.Logf("%s: %.1f s", name, time.Since(began).Seconds())
}

func (l *lab) boot() {
	l.t.Helper()
	ctx, cancel := l.context()
	defer cancel()
	began := time.Now()
	l.must(l.Boot(ctx))
	talked := time.Since(began)
	l.must(l.Up(ctx))
	l.t.Logf("boot %d: the agent after %.1f s, all units after %.1f s", l.Boots, talked.Seconds(), time.Since(began).Seconds())
}

func (l *lab) shell(format string, values ...any) string {
	l.t.Helper()
	ctx, cancel := l.context()
	defer cancel()
	text, err := l.Shell(ctx, fmt.Sprintf(format, values...))
	l.must(err)
	return strings.TrimSpace(text)
}

func (l *lab) put(path, content string) {
	l.t.Helper()
	ctx, cancel := l.context()
	defer cancel()
	l.must(l.Put(ctx, path, []byte(content)))
}

// project is the directory of the machine for files of the project, where the commands of
// guides run.
const project = "/root/project"

// putProject writes files of the project to the directory project.
func (l *lab) putProject(paths ...string) {
	l.t.Helper()
	for _, path := range paths {
		content, err := os.ReadFile(filepath.Join("../..", path))
		l.must(err)
		l.put(filepath.Join(project, path), string(content))
	}
}

// eventually polls until a condition of the machine holds.
func (l *lab) eventually(what string, holds func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			l.t.Fatalf("after %v, it is not so that %s", patience, what)
		}
		time.Sleep(time.Second)
	}
}

// checkShutdown reads what the last shutdown logged.
func (l *lab) checkShutdown() {
	l.t.Helper()
	if got := l.shell("journalctl -b -1 --no-pager -o cat | grep -iE 'target is busy|failed unmounting|failed to unmount|unmount.*failed' || true"); got != "" {
		l.t.Errorf("the shutdown logged:\n%s", got)
	}
}

// shutDown has systemd reboot the machine and returns when it is off. It calls last
// when the machine can report nothing more, and can still be asked what it reported.
func (l *lab) shutDown(last func()) {
	l.t.Helper()
	ctx, cancel := l.context()
	defer cancel()
	began := time.Now()
	_, err := l.Run(ctx, "systemctl", "reboot", "--no-block")
	l.must(err)
	l.must(l.AwaitOff(ctx))
	last()
	loss, err := l.Off(ctx)
	l.must(err)
	l.t.Logf("shut down in %.1f s; writes after the last flush: %d", time.Since(began).Seconds(), loss.Lost)
}

func (l *lab) cut(keep float64) {
	l.t.Helper()
	loss, err := l.CutPower(l.random, keep)
	l.must(err)
	l.t.Logf("power cut: of the unflushed writes, %d kept, %d torn, %d lost", loss.Kept, loss.Torn, loss.Lost)
}
