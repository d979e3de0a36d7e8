package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

const (
	mebibyte = 1 << 20
	btrfsMin = 128 * mebibyte
	xfsMin   = 300 * mebibyte
)

// sizes are the smallest volumes on which each filesystem is made.
var sizes = map[string]int64{"ext4": 32 * mebibyte, "xfs": xfsMin, "btrfs": btrfsMin}

// counter counts the programs that are run.
type counter struct {
	command.Runner
	runs atomic.Int64
}

func (c *counter) Run(ctx context.Context, cmd command.Command) (command.Result, error) {
	c.runs.Add(1)
	return c.Runner.Run(ctx, cmd)
}

// fixture is an engine over files in a new directory, with a kubelet directory next to
// the pool. At its end, mounts and devices must be gone.
type fixture struct {
	t       testing.TB
	dir     string
	kubelet string
	backend *fileBackend
	runner  *counter
	engine  *Engine
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	dir := nodetest.Dir(t)
	f := &fixture{t: t, dir: dir, kubelet: filepath.Join(dir, "kubelet"),
		backend: newFileBackend(t, filepath.Join(dir, "pool")), runner: &counter{Runner: command.NewSystem()}}
	f.mkdir(f.kubelet)
	options := Options{Backend: f.backend, KubeletDir: f.kubelet, Forbidden: []string{f.backend.dir}, Runner: f.runner,
		Traits: backend.Traits{Filesystems: []string{"ext4", "xfs", "btrfs"}, Block: true}}
	for _, c := range change {
		c(&options)
	}
	f.engine = newEngine(t, options)
	return f
}

func newEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	engine, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func withFailpoints(t testing.TB, terms string) func(*Options) {
	t.Helper()
	set, err := failpoint.Parse(terms)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Failpoints = set }
}

func (f *fixture) mkdir(path string) string {
	f.t.Helper()
	if err := os.MkdirAll(path, 0o750); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) wantError(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Fatalf("error %v; want %v", err, want)
	}
}

func (f *fixture) stagingDir(id string) string {
	f.t.Helper()
	return f.mkdir(filepath.Join(f.kubelet, "plugins", id, "globalmount"))
}

func (f *fixture) target(id, pod string) string {
	f.t.Helper()
	return filepath.Join(f.mkdir(filepath.Join(f.kubelet, "pods", pod, id)), "mount")
}

func filesystem(fsType string, flags ...string) backend.Capability {
	return backend.Capability{Mode: backend.SingleNodeMultiWriter, FSType: fsType, MountFlags: flags}
}

func block() backend.Capability {
	return backend.Capability{Mode: backend.SingleNodeMultiWriter, Block: true}
}

func (f *fixture) stage(id string, c backend.Capability) error {
	f.t.Helper()
	return f.engine.Stage(f.t.Context(), StageRequest{VolumeID: id, StagingPath: f.stagingDir(id), Capability: c})
}

func (f *fixture) unstage(id string) error {
	f.t.Helper()
	return f.engine.Unstage(f.t.Context(), id, f.stagingDir(id))
}

func (f *fixture) publish(id, pod string, c backend.Capability, readOnly bool) error {
	f.t.Helper()
	return f.engine.Publish(f.t.Context(), PublishRequest{VolumeID: id, StagingPath: f.stagingDir(id), TargetPath: f.target(id, pod), Capability: c, ReadOnly: readOnly})
}

func (f *fixture) unpublish(id, pod string) error {
	f.t.Helper()
	return f.engine.Unpublish(f.t.Context(), id, f.target(id, pod))
}

// cleanUp takes a volume away at the end of a test that may fail half way.
func (f *fixture) cleanUp(id string, pods ...string) {
	f.t.Cleanup(func() {
		for _, pod := range pods {
			if err := f.engine.Unpublish(context.Background(), id, filepath.Join(f.kubelet, "pods", pod, id, "mount")); err != nil {
				f.t.Error(err)
			}
		}
		if err := f.engine.Unstage(context.Background(), id, filepath.Join(f.kubelet, "plugins", id, "globalmount")); err != nil {
			f.t.Error(err)
		}
	})
}

func (f *fixture) write(path, content string) {
	f.t.Helper()
	f.must(os.WriteFile(path, []byte(content), 0o600))
}

func (f *fixture) wantContent(path, want string) {
	f.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		f.t.Fatalf("%s has %q, %v; want %q", path, got, err, want)
	}
}

// run runs a tool of the test itself.
func (f *fixture) run(name string, args ...string) string {
	f.t.Helper()
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s %v: %v: %s", name, args, err, output)
	}
	return string(bytes.TrimSpace(output))
}
