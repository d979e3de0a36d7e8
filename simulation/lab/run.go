package lab

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	random "k8s.io/apimachinery/pkg/util/rand"
)

// World builds what is simulated, drives it through the Lab, and returns the rule that was
// broken, or nil. All goroutines that it started have ended when it returns.
type World func(*Lab) error

// Result is that of a run.
type Result struct {
	Seed    uint64
	Err     error
	Steps   int
	Virtual time.Duration
	// Hash identifies the trace: a repeated run has the same.
	Hash    string
	Trace   []string
	Choices Choices
}

// hangs is the real time without a step after which a run is taken for blocked outside the
// bubble.
const hangs = 2 * time.Minute

// Run runs the world of a seed.
func Run(t *testing.T, seed uint64, world World) Result {
	t.Helper()
	result := run(t, newSource(seed), world)
	result.Seed = seed
	return result
}

// Replay runs a world with the choices of an earlier run.
func Replay(t *testing.T, choices Choices, world World) Result {
	t.Helper()
	return run(t, &source{given: choices}, world)
}

// run runs a world in a bubble, on one processor and without the garbage collector, both of
// which would change the order of goroutines.
func run(t *testing.T, from *source, world World) (result Result) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.MemProfileRate = 0 // its samples take random numbers
	// What takes its random numbers from elsewhere than the runtime:
	uuid.SetRand(&counter{})
	random.Seed(1)
	defer uuid.SetRand(nil)
	_ = time.Now().Local().String() // reads the file of the time zone, which the bubble must not do
	defer watch(from).Stop()
	synctest.Test(t, func(*testing.T) {
		l := newLab(from)
		result.Err = guarded(l, world)
		result.Steps, result.Virtual = l.trace.steps, l.Elapsed()
		if result.Err != nil {
			l.Note("failed: %v", result.Err)
		}
		result.Hash, result.Trace = l.trace.hash(), l.trace.lines
	})
	result.Choices = from.made
	collect()
	return result
}

// watch ends the process of a run that goes no further. A busy machine may need minutes for a
// run.
func watch(from *source) *time.Timer {
	var watchdog *time.Timer
	before := int64(0)
	watchdog = time.AfterFunc(hangs, func() {
		now := from.turns.Load()
		if now == before {
			panic(fmt.Sprintf("a run is blocked by something outside its bubble; it has settled %d times", now))
		}
		before = now
		watchdog.Reset(hangs)
	})
	return watchdog
}

// counter makes UUIDs that are the same in each run.
type counter struct{ n uint64 }

func (c *counter) Read(p []byte) (int, error) {
	c.n++
	for i := range p {
		p[i] = byte(c.n >> (8 * (uint(i) % 4)))
	}
	return len(p), nil
}

// guarded turns a panic of the world's own goroutine into an error.
func guarded(l *Lab, world World) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v\n%s", problem, debug.Stack()))
		}
	}()
	return world(l)
}

// garbage is how much a run may leave before it is collected.
const garbage = 256 << 20

func collect() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > garbage {
		runtime.GC()
	}
}
