package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// gate delays the programs whose arguments contain a text until it opens.
type gate struct {
	command.Runner
	text    string
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newGate(text string) *gate {
	return &gate{Runner: command.NewSystem(), text: text, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) Run(ctx context.Context, c command.Command) (command.Result, error) {
	if strings.Contains(strings.Join(c.Args, " "), g.text) {
		g.once.Do(func() { close(g.reached) })
		select {
		case <-g.open:
		case <-ctx.Done():
			return command.Result{}, ctx.Err()
		}
	}
	return g.Runner.Run(ctx, c)
}

// While the mkfs of one volume does not come to an end, fifty others are
// staged and published; only a second call for the first is turned away, at once.
func TestStage_noVolumeWaitsForTheMkfsOfAnother(t *testing.T) {
	slow := newGate("")
	f := newFixture(t, func(o *Options) { o.Runner = slow })
	f.backend.add(t, "slow", sizes["ext4"])
	f.cleanUp("slow")
	const others = 50
	for i := range others {
		id := fmt.Sprintf("vol-%d", i)
		f.backend.add(t, id, sizes["ext4"])
		f.fill(id, "mkfs.ext4", "-q", "-F", "FILE")
		f.cleanUp(id, "pod")
		f.stagingDir(id)
		f.target(id, "pod")
	}
	f.stagingDir("slow")

	finished := make(chan error, 1)
	go func() { finished <- f.stage("slow", filesystem("ext4")) }()
	<-slow.reached
	start := time.Now()
	// A call that waited for the mkfs would never be answered.
	f.wantError(f.stage("slow", filesystem("ext4")), backend.ErrBusy)
	f.wantError(f.unstage("slow"), backend.ErrBusy)
	var group sync.WaitGroup
	for i := range others {
		group.Go(func() {
			id := fmt.Sprintf("vol-%d", i)
			if err := errors.Join(f.stage(id, filesystem("ext4")), f.publish(id, "pod", filesystem("ext4"), false)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	t.Logf("%d volumes were staged and published in %v", others, time.Since(start))
	close(slow.open)
	f.must(<-finished)
}

// Formatting outlasts its caller, and the repeat is right after any result.
func TestStage_cancelledInMkfsIsFinishedByTheNextCall(t *testing.T) {
	slow := newGate("")
	f := newFixture(t, func(o *Options) { o.Runner = slow })
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-slow.reached; cancel() }()
	err := f.engine.Stage(ctx, StageRequest{VolumeID: "vol-a", StagingPath: f.stagingDir("vol-a"), Capability: filesystem("ext4")})
	f.wantError(err, context.Canceled)
	f.must(f.engine.Wait(t.Context()))
	nodetest.NoLeaks(t, f.dir)
	close(slow.open)
	f.must(f.stage("vol-a", filesystem("ext4")))
}

// stuck is a backend whose device does not answer.
type stuck struct {
	backend.Node
	reached, release chan struct{}
}

func (s stuck) Devices(ctx context.Context, id string) ([]backend.Device, error) {
	s.reached <- struct{}{}
	<-s.release // deaf to the context, as a system call is
	return s.Node.Devices(ctx, id)
}

func TestEngine_answersWhenTheContextEndsAndKeepsTheKey(t *testing.T) {
	reached, release := make(chan struct{}, 10), make(chan struct{})
	f := newFixture(t, func(o *Options) { o.Backend = stuck{o.Backend, reached, release} })
	f.backend.add(t, "vol-a", sizes["ext4"])
	path := f.stagingDir("vol-a")
	// givenUp is a call whose context ends once it is stuck.
	givenUp := func(call func(context.Context) error) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { <-reached; cancel() }()
		return call(ctx)
	}
	f.wantError(givenUp(func(ctx context.Context) error { return f.engine.Unstage(ctx, "vol-a", path) }), context.Canceled)
	stats := func(ctx context.Context) error {
		_, err := f.engine.Stats(ctx, "vol-a", path, "")
		return err
	}
	f.wantError(givenUp(stats), context.Canceled)
	f.wantError(f.engine.Unstage(t.Context(), "vol-a", path), backend.ErrBusy)
	f.wantError(stats(t.Context()), backend.ErrBusy)
	close(release)
	f.must(f.engine.Wait(t.Context()))
	f.must(f.engine.Unstage(t.Context(), "vol-a", path))
}

func TestVolumeHealth_ofADeviceThatDoesNotAnswer(t *testing.T) {
	reached, release := make(chan struct{}, 10), make(chan struct{})
	f := newFixture(t, func(o *Options) { o.Backend = stuck{o.Backend, reached, release} })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	problems, err := f.engine.VolumeHealth(ctx, "vol-a", "", "")
	if err != nil || len(problems) != 1 || problems[0].Kind != backend.HealthInaccessible {
		t.Errorf("%v, %v", problems, err)
	}
	close(release)
	f.must(f.engine.Wait(t.Context()))
}

// fragile panics in the middle of a call.
type fragile struct{ backend.Node }

func (fragile) Devices(context.Context, string) ([]backend.Device, error) { panic("out of order") }

func TestEngine_panicIsAnErrorAndFreesTheKey(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Backend = fragile{o.Backend} })
	for range 2 {
		err := f.engine.Unstage(t.Context(), "vol-a", f.stagingDir("vol-a"))
		if err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Fatal(err)
		}
	}
}

func TestNew_refusesNonsense(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("no backend: %v", err)
	}
	o := Options{Backend: plainNode{}, Traits: backend.Traits{Filesystems: []string{"ntfs"}}}
	if _, err := New(o); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("an unknown filesystem: %v", err)
	}
}

func TestInfoAndProbe_askTheBackend(t *testing.T) {
	f := newFixture(t)
	info, err := f.engine.Info(t.Context())
	if err != nil || info.ID != "node" {
		t.Errorf("%+v, %v", info, err)
	}
	f.must(f.engine.Probe(t.Context()))
}

// scenario is a sequence of calls that ends with nothing left. It is run under
// a failure at every point it passes, and must converge when it is repeated.
type scenario struct {
	name  string
	size  int64
	setUp func(f *fixture)
	steps []func(f *fixture) error
}

func scenarios() []scenario {
	stage := func(c backend.Capability) func(*fixture) error {
		return func(f *fixture) error { return f.stage("vol-a", c) }
	}
	publish := func(pod string, c backend.Capability, readOnly bool) func(*fixture) error {
		return func(f *fixture) error { return f.publish("vol-a", pod, c, readOnly) }
	}
	unpublish := func(pod string) func(*fixture) error {
		return func(f *fixture) error { return f.unpublish("vol-a", pod) }
	}
	unstage := func(f *fixture) error { return f.unstage("vol-a") }
	expand := func(size int64) func(*fixture) error {
		return func(f *fixture) error {
			if err := os.Truncate(f.backend.path("vol-a"), size); err != nil {
				return err
			}
			_, err := f.expand("vol-a", f.stagingDir("vol-a"), size, 0)
			return err
		}
	}
	inline := func(f *fixture) error {
		return f.engine.Publish(f.t.Context(), f.inlineRequest(filesystem("ext4")))
	}
	ext4, xfs := filesystem("ext4"), filesystem("xfs")
	return []scenario{
		{"filesystem", sizes["ext4"], nil, []func(*fixture) error{stage(ext4), publish("a", ext4, false), publish("b", ext4, true), unpublish("a"), unpublish("b"), unstage}},
		{"block", sizes["ext4"], nil, []func(*fixture) error{stage(block()), publish("a", block(), false), unpublish("a"), publish("b", block(), true), unpublish("b"), unstage}},
		{"expand", xfsMin, nil, []func(*fixture) error{stage(xfs), expand(2 * xfsMin), unstage}},
		{"restore", 2 * sizes["ext4"], func(f *fixture) { f.fill("vol-a", "mkfs.ext4", "-q", "-F", "FILE", "32M") }, []func(*fixture) error{stage(ext4), unstage}},
		{"check", sizes["ext4"], func(f *fixture) {
			f.fill("vol-a", "mkfs.ext4", "-q", "-F", "FILE")
			f.fill("vol-a", "debugfs", "-w", "-R", "ssv state 2", "FILE")
		}, []func(*fixture) error{stage(ext4), unstage}},
		{"inline", sizes["ext4"], nil, []func(*fixture) error{inline, (*fixture).unpublishInline}},
	}
}

func (s scenario) start(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	f := newFixture(t, change...)
	f.backend.add(t, "vol-a", s.size)
	if s.setUp != nil {
		s.setUp(f)
	}
	return f
}

// points runs the scenario once and lists the failpoints that each step passes.
func (s scenario) points(t *testing.T) [][]string {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	t.Setenv(failpoint.TraceVariable, trace)
	set, err := failpoint.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	f := s.start(t, func(o *Options) { o.Failpoints = set })
	var list [][]string
	for _, step := range s.steps {
		f.must(step(f))
		data, err := os.ReadFile(trace)
		f.must(err)
		list = append(list, strings.Fields(string(data)))
		f.must(os.Truncate(trace, 0))
	}
	nodetest.NoLeaks(t, f.dir)
	return list
}

// terms are all the failures to inject: each point at each of its passings.
func terms(points []string, action string) []string {
	passed := map[string]int{}
	var list []string
	for _, point := range points {
		passed[point]++
		list = append(list, fmt.Sprintf("%s=%s@%d", point, action, passed[point]))
	}
	return list
}

func TestEngine_convergesAfterAFailureAtEveryPoint(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			points := slices.Concat(s.points(t)...)
			if len(points) == 0 {
				t.Fatal("no failpoint was passed")
			}
			for _, term := range terms(points, "error") {
				t.Run(strings.ReplaceAll(term, "/", "-"), func(t *testing.T) { s.fail(t, term) })
			}
		})
	}
}

// fail repeats each step until it succeeds, as an orchestrator does.
func (s scenario) fail(t *testing.T, term string) {
	t.Helper()
	f := s.start(t, withFailpoints(t, term))
	failures := 0
	for _, step := range s.steps {
		err := step(f)
		if errors.Is(err, failpoint.ErrInjected) {
			failures++
			f.noRest(s.name)
			f.takeFreeLoop()
			err = step(f)
		}
		f.must(err)
	}
	if failures != 1 {
		t.Errorf("%d steps failed; want one", failures)
	}
	if s.name == "inline" {
		f.wantNothing()
	}
	nodetest.NoLeaks(t, f.dir)
}

// takeFreeLoop attaches a file of another owner, which gets the number of a loop
// device that was just detached.
func (f *fixture) takeFreeLoop() {
	f.t.Helper()
	file := nodetest.File(f.t, nodetest.Dir(f.t), "other", mebibyte)
	loop, err := blockdev.AttachLoop(f.t.Context(), blockdev.LoopConfig{File: file, Path: file.Name(), AutoClear: true})
	f.must(err)
	f.t.Cleanup(func() { f.must(loop.Close()) })
}

// noRest checks that a failed inline publish left nothing.
func (f *fixture) noRest(scenario string) {
	f.t.Helper()
	if scenario != "inline" {
		return
	}
	if _, err := os.Lstat(f.target("scratch", "pod")); err == nil {
		return // an unpublish failed half way; it will be repeated
	}
	nodetest.NoLeaks(f.t, f.dir)
}
