package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// The variables by which the sweep instructs its child.
const (
	crashPool     = "HOLDFAST_TEST_CRASH_POOL"
	crashScenario = "HOLDFAST_TEST_CRASH_SCENARIO"
)

// scenario is one mutating operation, and the state it begins in.
type scenario struct {
	// prepare makes the operation's sources.
	prepare func(*world)
	// act is the CO's call, which it repeats until it succeeds.
	act func(context.Context, *Pool, *guard.Guard) error
	// opening means that the failure of one entry does not fail the operation,
	// which is the start: the next one ends it.
	opening bool
	// corrupt changes the closed pool by hand, as a crash would leave it.
	corrupt func(*world)
	// adopter is the node that opens the pool of another one, once it is prepared.
	adopter string
	// partial is a volume that is only begun.
	partial string
	// check verifies the result of the repeated act.
	check func(*world)
}

// With -short steps fail and the process does not end, and only on the pool with reflink:
// the race detector adds nothing to the others.
func TestCrash_convergesAfterADeathAtEveryPoint(t *testing.T) {
	t.Parallel()
	fsTypes := []string{"ext4", "xfs"}
	if testing.Short() {
		fsTypes = []string{"xfs"}
	}
	for _, fsType := range fsTypes {
		base := disk(t, fsType, 2*gibibyte)
		for _, name := range slices.Sorted(maps.Keys(scenarios())) {
			if !sweepCovers(fsType, name) {
				continue
			}
			t.Run(fsType+" "+name, func(t *testing.T) {
				t.Parallel()
				sweep(t, base, name)
			})
		}
	}
}

// sweep runs a scenario once undisturbed, to list the steps to stop at
// and how it should end, and then dies at every point that was passed.
func sweep(t *testing.T, base, name string) {
	reference := newWorld(t, base, name)
	points := reference.trace()
	if len(points) == 0 {
		t.Fatal("no point was passed: this scenario proves nothing")
	}
	reference.wantEnd(reference.listing())
	want := reference.listing()
	reference.end()
	for _, point := range points {
		if !testing.Short() {
			t.Run("death at "+strings.ReplaceAll(point, "/", "."), func(t *testing.T) {
				w := newWorld(t, base, name)
				w.die(point)
				w.converge(want)
				w.end()
			})
		}
		t.Run("error at "+strings.ReplaceAll(point, "/", "."), func(t *testing.T) {
			w := newWorld(t, base, name)
			w.fail(point)
			w.converge(want)
			w.end()
		})
	}
}

// TestCrashChild is the process that dies.
func TestCrashChild(t *testing.T) {
	dir, name := os.Getenv(crashPool), os.Getenv(crashScenario)
	if dir == "" {
		return
	}
	points, err := failpoint.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	options := scenarios()[name].options(dir)
	options.Failpoints = points
	if name == imageScenario {
		options.PoolImage = &ImageOptions{Path: dir + ".image", Size: imageSize}
	}
	pool := open(t, options)
	pool.saveEvery, pool.allocateEvery = crashSaveEvery, crashAllocateEvery
	if name == imageScenario {
		return
	}
	if err := scenarios()[name].act(t.Context(), pool, guard.New(pool)); err != nil {
		t.Fatal(err)
	}
}

// options are those of the start.
func (s scenario) options(dir string) Options {
	return Options{Pool: dir, NodeID: s.adopter, Adopt: s.adopter != ""}
}

const imageScenario = "open on an image"

func TestCrash_poolImageConverges(t *testing.T) {
	for _, point := range imagePoints(t) {
		t.Run(strings.ReplaceAll(point, "/", "."), func(t *testing.T) {
			w := imageWorld(t)
			w.die(point)
			if loops := nodetest.LoopsBelow(t, filepath.Dir(w.dir)); len(loops) > 0 && len(nodetest.MountsBelow(t, w.dir)) == 0 {
				t.Errorf("the death left %v, which nothing uses", loops)
			}
			pool := open(t, Options{Pool: w.dir, PoolImage: &ImageOptions{Path: w.dir + ".image", Size: imageSize}})
			if !pool.reflink.Load() {
				t.Error("the pool is not on the image")
			}
		})
	}
}

func imageWorld(t *testing.T) *world {
	t.Helper()
	w := &world{TB: t, dir: filepath.Join(scratchDir(t), "pool"), name: imageScenario}
	t.Cleanup(func() { unmountIfMounted(t, w.dir) })
	return w
}

func imagePoints(t *testing.T) []string {
	t.Helper()
	points := imageWorld(t).trace()
	if !slices.Contains(points, "local/image/mounted@1") {
		t.Fatalf("points %v: the image was not mounted", points)
	}
	return points
}

// world is a pool with something in it.
type world struct {
	testing.TB
	dir      string
	name     string
	scenario scenario
	pool     *Pool  // while this process has it open
	mounted  string // a mounted filesystem of a volume, or ""
	formats  bool   // volume one is or was mounted: its content is not the pattern
	frozen   bool   // an administrator froze it
	before   []string
}

func newWorld(t *testing.T, base, name string) *world {
	t.Helper()
	dir, err := os.MkdirTemp(base, "pool-") //nolint:usetesting // on the filesystem under test
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, dir: dir, name: name, scenario: scenarios()[name]}
	t.Cleanup(w.end)
	w.openWith(Options{Pool: w.dir})
	w.scenario.prepare(w)
	w.before = w.listing()
	w.shut()
	if w.scenario.corrupt != nil {
		w.scenario.corrupt(w)
	}
	return w
}

func (w *world) open(points *failpoint.Set) {
	w.Helper()
	options := w.scenario.options(w.dir)
	options.Failpoints = points
	w.openWith(options)
}

func (w *world) openWith(options Options) {
	w.Helper()
	pool, err := tryOpen(w.TB, options)
	if err != nil {
		w.Fatal(err)
	}
	pool.saveEvery, pool.allocateEvery = crashSaveEvery, crashAllocateEvery
	w.pool = pool
}

func (w *world) shut() {
	w.Helper()
	if w.pool != nil {
		shut(w.TB, w.pool)
		w.pool = nil
	}
}

// end takes the world down; it may be called twice.
func (w *world) end() {
	w.Helper()
	w.shut()
	if w.mounted != "" {
		thawAndUnmount(w.TB, w.mounted)
		w.mounted = ""
	}
	nodetest.NoLeaks(w.TB, w.dir)
	if err := os.RemoveAll(w.dir); err != nil {
		w.Error(err)
	}
}

func (w *world) child(environment ...string) error {
	w.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestCrashChild$", "-test.timeout=60s")
	command.Env = append(os.Environ(), crashPool+"="+w.dir, crashScenario+"="+w.name)
	command.Env = append(command.Env, environment...)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return err
	}
	if err != nil {
		w.Fatalf("the child failed: %v\n%s", err, output)
	}
	return nil
}

// trace runs the scenario in a child and lists the points it passed, with the
// number of the passing, at most the first three of each.
func (w *world) trace() []string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "trace")
	if err := w.child(failpoint.TraceVariable + "=" + file); err != nil {
		w.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	passed := map[string]int{}
	var points []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		name := lines.Text()
		if passed[name]++; passed[name] <= 3 {
			points = append(points, fmt.Sprintf("%s@%d", name, passed[name]))
		}
	}
	return points
}

func (w *world) die(point string) {
	w.Helper()
	name, count, _ := strings.Cut(point, "@")
	// The record of a freeze was written, and the kernel does not say whose freeze it
	// is: the next start thaws it, and this administrator's freeze with it.
	w.frozen = w.frozen && name != "local/freeze/recorded"
	if err := w.child(failpoint.TermsVariable + "=" + name + "=kill@" + count); err == nil {
		w.Fatalf("the child did not die at %s", point)
	}
}

// fail has a step fail in a process that lives on.
func (w *world) fail(point string) {
	w.Helper()
	name, count, _ := strings.Cut(point, "@")
	points, err := failpoint.Parse(name + "=error@" + count)
	if err != nil {
		w.Fatal(err)
	}
	options := w.scenario.options(w.dir)
	options.Failpoints = points
	pool, err := tryOpen(w.TB, options)
	if errors.Is(err, failpoint.ErrInjected) {
		return
	}
	if err != nil {
		w.Fatal(err)
	}
	if w.scenario.opening {
		shut(w.TB, pool)
		return
	}
	pool.saveEvery, pool.allocateEvery = crashSaveEvery, crashAllocateEvery
	if err := w.scenario.act(w.Context(), pool, guard.New(pool)); !errors.Is(err, failpoint.ErrInjected) {
		w.Errorf("got %v; want the injected failure", err)
	}
	w.wantThawed()
	// The same process tries again, as it would for a CO.
	if err := w.scenario.act(w.Context(), pool, guard.New(pool)); err != nil {
		w.Errorf("the repeated call of the same process: %v", err)
	}
	shut(w.TB, pool)
}

// converge starts again and repeats the operation: both must end well.
func (w *world) converge(want []string) {
	w.Helper()
	w.open(nil)
	w.wantThawed()
	w.wantNothingHalf(want)
	if err := w.scenario.act(w.Context(), w.pool, guard.New(w.pool)); err != nil {
		w.Fatalf("the repeated call: %v", err)
	}
	w.wantEnd(want)
}

// wantEnd checks the state after the operation succeeded.
func (w *world) wantEnd(want []string) {
	w.Helper()
	if w.pool == nil {
		w.open(nil)
	}
	if diff := cmp.Diff(want, w.listing()); diff != "" {
		w.Errorf("the pool differs from that of an undisturbed run:\n%s", diff)
	}
	w.wantThawed()
	if w.scenario.check != nil {
		w.scenario.check(w)
	}
}

// wantNothingHalf fails unless every entry, after a start alone, is as before or as
// after the operation, or is the beginning of a copy that can continue.
func (w *world) wantNothingHalf(after []string) {
	w.Helper()
	for _, name := range w.listing() {
		if slices.Contains(w.before, name) || slices.Contains(after, name) {
			continue
		}
		w.Errorf("start-up left %s", name)
	}
	for _, entry := range w.before {
		if w.scenario.partial != "" && strings.Contains(entry, w.scenario.partial) {
			continue
		}
		if !slices.Contains(w.listing(), entry) && slices.Contains(after, entry) {
			w.Errorf("start-up lost %s", entry)
		}
	}
}

// listing names every file of the pool but the records' contents.
func (w *world) listing() []string {
	w.Helper()
	var names []string
	for _, dir := range []string{volumesDir, snapshotsDir, groupsDir, trashDir} {
		err := filepath.WalkDir(filepath.Join(w.dir, dir), func(path string, _ os.DirEntry, err error) error {
			relative, _ := filepath.Rel(w.dir, path)
			names = append(names, relative)
			return err
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	for _, name := range names {
		if durable.IsTemp(name) || strings.HasPrefix(name, trashDir+"/") {
			w.Errorf("left behind: %s", name)
		}
	}
	return names
}

// wantThawed writes to the mounted filesystem, which blocks while it is frozen. One
// that an administrator froze is frozen still.
func (w *world) wantThawed() {
	w.Helper()
	if w.mounted == "" {
		return
	}
	if w.frozen {
		if !isFrozen(w, w.mounted) {
			w.Fatalf("%s was thawed, and an administrator froze it", w.mounted)
		}
		return
	}
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(w.mounted, "written"), []byte("x"), 0o600) }()
	select {
	case err := <-done:
		if err != nil {
			w.Error(err)
		}
	case <-time.After(time.Minute):
		w.Fatalf("%s is still frozen", w.mounted)
	}
}

func (w *world) volume(name string, size int64, provisioning string) backend.Volume {
	w.Helper()
	volume := create(w.TB, w.pool, backend.VolumeSpec{
		Name: name, Size: size, Parameters: map[string]string{parameterProvisioning: provisioning},
	})
	return volume
}

// filled makes a volume with content all over it.
func (w *world) filled(name string, provisioning string) backend.Volume {
	w.Helper()
	volume := w.volume(name, filledSize, provisioning)
	writeVolume(w.TB, w.pool, volume.ID, 0, pattern(name))
	return volume
}

// A copy of a filled volume is saved twice before its end.
const (
	filledSize         = 3 * mebibyte
	crashSaveEvery     = mebibyte
	crashAllocateEvery = 4 * mebibyte

	mountedSize = 5 * mebibyte // of a volume with a filesystem
)

func pattern(name string) []byte {
	return bytes.Repeat([]byte(name+" "), filledSize/len(name+" "))
}

// wantContent checks the content of a volume against the one it was made of.
func (w *world) wantContent(name, from string) {
	w.Helper()
	want := pattern(from)
	data, err := w.pool.openData(volumePath(idOf(volumePrefix, name)), os.O_RDONLY)
	must(w.TB, err)
	defer func() { _ = data.Close() }()
	got := make([]byte, len(want))
	if _, err := data.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		w.Errorf("volume %s lacks the content of %s", name, from)
	}
}
