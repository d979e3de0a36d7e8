package lab

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// childRun is the environment variable that names the run of a process: "seed 17", or
	// "choices 0*5 1".
	childRun = "SIMULATION_RUN"
	// outcomeMark begins the line with the outcome.
	outcomeMark = "outcome "
	// childTime is how long a process may run: far more than a run needs on a busy machine, whose
	// own watchdog knows sooner that it is blocked.
	childTime = 30 * time.Minute
	// repeatEvery: every so many seeds, one runs twice, and both traces must be equal.
	repeatEvery = 25
	// mostFailures ends a run of many seeds.
	mostFailures = 20
)

// programOfChild is this program in a process that has its file as descriptor 3, the first of
// exec.Cmd.ExtraFiles.
const programOfChild = "/proc/self/fd/3"

func seedRun(seed int) string { return fmt.Sprintf("seed %d", seed) }

// run executes a run in a process of its own. Its environment and the path of its program are
// always the same, since even the length of a variable moves what the process allocates, and
// with it the order of maps by pointers.
func (s simulation) run(ctx context.Context, what string) outcome {
	ctx, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	child := exec.CommandContext(ctx, programOfChild, "-test.run", "^"+s.t.Name()+"$")
	child.ExtraFiles, child.Dir = []*os.File{s.program}, "/"
	child.Env = []string{"GOMAXPROCS=1", "GOGC=off", "DEFECT=" + s.defect, childRun + "=" + what}
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	failed := child.Run()
	o, err := readOutcome(output.Bytes())
	if err != nil {
		o = outcome{Failure: fmt.Sprintf("%v: %v", err, failed), Trace: strings.Split(output.String(), "\n")}
	}
	if state := child.ProcessState; state != nil {
		o.cpu = state.UserTime() + state.SystemTime()
	}
	return o
}

// numbered is the outcome of a seed.
type numbered struct {
	outcome
	seed int
	// again is a failure to repeat the trace.
	again string
}

// each runs seeds, several at a time, and calls done for each outcome, one at a time. It
// begins no more once done returns false.
func (s simulation) each(ctx context.Context, first, count int, done func(numbered) bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seeds := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range s.number("PROCESSES", runtime.NumCPU()) {
		workers.Go(func() {
			for seed := range seeds {
				o := numbered{outcome: s.run(ctx, seedRun(seed)), seed: seed}
				if ctx.Err() != nil {
					continue
				}
				mu.Lock()
				if !done(o) {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for seed := first; seed < first+count && ctx.Err() == nil; seed++ {
		select {
		case seeds <- seed:
		case <-ctx.Done():
		}
	}
	close(seeds)
	workers.Wait()
}

// many runs seeds, and reports those that fail.
func (s simulation) many() {
	s.t.Helper()
	first, count := s.number("FIRST", 0), s.number("SEEDS", 1)
	var failures []numbered
	began, steps, cpu, seeds := time.Now(), 0, time.Duration(0), 0
	s.each(s.t.Context(), first, count, func(o numbered) bool {
		if o.Failure == "" && o.seed%repeatEvery == 0 {
			if again := s.run(s.t.Context(), seedRun(o.seed)); again.Hash != o.Hash {
				o.again = fmt.Sprintf("seed %d has two traces: %s and %s", o.seed, o.Hash, again.Hash)
			}
		}
		seeds, steps, cpu = seeds+1, steps+o.Steps, cpu+o.cpu
		if os.Getenv("VERBOSE") != "" {
			fmt.Printf("seed %d: trace %s, %d steps, %v of CPU %s\n", o.seed, o.Hash, o.Steps, o.cpu.Round(time.Millisecond), o.Failure)
		}
		if o.Failure != "" || o.again != "" {
			failures = append(failures, o)
			fmt.Printf("seed %d fails: %s%s\n", o.seed, o.Failure, o.again)
		}
		return len(failures) < mostFailures
	})
	slices.SortFunc(failures, func(a, b numbered) int { return cmp.Compare(a.seed, b.seed) })
	fmt.Printf("%s: %d seeds from %d, %d steps, in %v, %v of CPU, %v a seed; %d fail\n", s.door, seeds, first, steps,
		time.Since(began).Round(time.Second), cpu.Round(time.Second), (cpu / time.Duration(max(seeds, 1))).Round(time.Millisecond), len(failures))
	for i, o := range failures {
		if i == 0 {
			s.report(o.outcome)
		}
		s.t.Errorf("seed %d fails; repeat it with: %s\n%s%s", o.seed, s.command(o.seed), o.Failure, o.again)
	}
}

// search plants each defect and prints the first seed that finds it, as a row of a table.
func (s simulation) search(defects []string) {
	s.t.Helper()
	count := s.number("SEEDS", 2000)
	for _, defect := range defects {
		s.defect = defect
		found, ok := s.firstFailure(s.number("FIRST", 0), count)
		if !ok {
			fmt.Printf("| `%s` | none of %d | |\n", defect, count)
			s.t.Errorf("no seed of %d finds %s", count, defect)
			continue
		}
		rule, _, _ := strings.Cut(found.Failure, "\n")
		fmt.Printf("| `%s` | %d | %s |\n", defect, found.seed, rule)
		s.defect = ""
		if sound := s.run(s.t.Context(), seedRun(found.seed)); sound.Failure != "" {
			s.t.Errorf("seed %d fails without %s, too: %s", found.seed, defect, sound.Failure)
		}
	}
}

// firstFailure returns the smallest seed that fails.
func (s simulation) firstFailure(first, count int) (found numbered, ok bool) {
	s.t.Helper()
	end := first + count
	s.each(s.t.Context(), first, count, func(o numbered) bool {
		if o.Failure != "" && (!ok || o.seed < found.seed) {
			found, ok = o, true
			end = o.seed
		}
		return !ok
	})
	// Those that were cancelled may have been smaller.
	for seed := max(first, end-runtime.NumCPU()*4); ok && seed < end; seed++ {
		if o := s.run(s.t.Context(), seedRun(seed)); o.Failure != "" {
			return numbered{outcome: o, seed: seed}, true
		}
	}
	return found, ok
}
