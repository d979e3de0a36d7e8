package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Simulate runs the seeds that the environment names:
//
//	SEED=N        one seed: prints its trace and hash, and shrinks a failure
//	FIRST=N       the first of many seeds; 0 without it
//	SEEDS=N       how many; otherwise those of the argument
//	CHOICES=TEXT  a run of these choices instead of a seed
//	TRACE=FILE    a file for the trace of the last run
//	FOR=DURATION  no seed begins later than that
//
// It fails for the first seed that fails, with the end of its trace.
func Simulate(t *testing.T, seeds int, world World) {
	t.Helper()
	s := simulation{t: t, world: world}
	switch {
	case os.Getenv("CHOICES") != "":
		choices, err := ParseChoices(os.Getenv("CHOICES"))
		if err != nil {
			t.Fatal(err)
		}
		s.report(Replay(t, choices, world))
	case os.Getenv("SEED") != "":
		s.one(s.number("SEED", 0))
	default:
		s.many(s.number("FIRST", 0), s.number("SEEDS", seeds))
	}
}

type simulation struct {
	t     *testing.T
	world World
}

func (s simulation) number(name string, otherwise int) int {
	s.t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return number
}

// one runs a seed, and shrinks its failure.
func (s simulation) one(seed int) {
	s.t.Helper()
	result := Run(s.t, uint64(seed), s.world) //nolint:gosec // not negative
	s.t.Logf("seed %d: trace %s, %d steps, %v of virtual time", seed, result.Hash, result.Steps, result.Virtual.Round(time.Second))
	s.save(result)
	if result.Err == nil {
		return
	}
	shrunk := shrink(result.Choices, s.fails)
	s.t.Logf("shrunk to: CHOICES=%q", shrunk)
	s.report(result)
}

// fails runs choices in a process of their own, since what a process has run before changes
// the order of its goroutines.
func (s simulation) fails(choices Choices) bool {
	child := exec.CommandContext(s.t.Context(), os.Args[0], "-test.run", "^"+s.t.Name()+"$") //nolint:gosec // this program
	child.Env = append(os.Environ(), "SEED=", "TRACE=", "CHOICES="+choices.String())
	return child.Run() != nil
}

// many runs seeds until one fails.
func (s simulation) many(first, count int) {
	s.t.Helper()
	limit, err := time.ParseDuration(os.Getenv("FOR"))
	if err != nil {
		limit = 24 * time.Hour
	}
	began, steps := time.Now(), 0
	for seed := first; seed < first+count && time.Since(began) < limit; seed++ {
		s.mark(seed)
		result := Run(s.t, uint64(seed), s.world) //nolint:gosec // not negative
		steps += result.Steps
		if os.Getenv("VERBOSE") != "" {
			s.t.Logf("seed %d: trace %s, %d steps, %v: %v", seed, result.Hash, result.Steps, time.Since(began), result.Err)
		}
		if result.Err != nil {
			s.t.Errorf("seed %d fails after %d seeds and %v", seed, seed-first+1, time.Since(began).Round(time.Millisecond))
			s.save(result)
			s.report(result)
			return
		}
	}
	s.t.Logf("seeds %d to %d: %d steps in %v", first, first+count-1, steps, time.Since(began).Round(time.Millisecond))
}

// mark writes the seed that runs into a file, for a process that crashes.
func (s simulation) mark(seed int) {
	if file := os.Getenv("RUNNING"); file != "" {
		_ = os.WriteFile(file, []byte(fmt.Sprint(seed)), 0o600) // a help only
	}
}

func (s simulation) save(result Result) {
	s.t.Helper()
	if file := os.Getenv("TRACE"); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(result.Trace, "\n")+"\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// shown is how many lines of a trace a failure shows.
const shown = 60

// report fails the test for a run that has failed.
func (s simulation) report(result Result) {
	s.t.Helper()
	s.save(result)
	if result.Err != nil {
		s.t.Errorf("%v\ntrace %s ends with:\n%s", result.Err, result.Hash, strings.Join(result.Trace[max(0, len(result.Trace)-shown):], "\n"))
	}
}
