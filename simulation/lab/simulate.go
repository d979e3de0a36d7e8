package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Simulate runs seeds of the world of a door, each in a process of its own, since what ran
// before in a process changes the order of its goroutines. The environment names them:
//
//	SEED=N          one seed; its failure is shrunk
//	CHOICES=TEXT    a run of these choices instead of a seed
//	FIRST=N         the first of many seeds; 0 without it
//	SEEDS=N         how many; 1 without it
//	DEFECT=NAME     with this planted defect
//	DEFECTS=NAMES   searches for the first seed that finds each of these planted defects
//	PROCESSES=N     how many run at a time; one for each processor without it
//	TRACE=FILE      a file for the trace of the run, or of the first failure
//	VERBOSE=1       a line for each seed
//
// A failure has the rule that was broken, the end of the trace, and the command that repeats
// it.
func Simulate(t *testing.T, door string, world World) {
	t.Helper()
	if what := os.Getenv(childRun); what != "" {
		runChild(t, what, world)
		return
	}
	program, err := ownProgram()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	s := simulation{t: t, door: door, defect: os.Getenv("DEFECT"), program: program}
	switch {
	case os.Getenv("CHOICES") != "":
		s.report(s.run(t.Context(), "choices "+os.Getenv("CHOICES")))
	case os.Getenv("SEED") != "":
		s.one(s.number("SEED", 0))
	case os.Getenv("DEFECTS") != "":
		s.search(strings.Fields(os.Getenv("DEFECTS")))
	default:
		s.many()
	}
}

// simulation runs seeds in processes.
type simulation struct {
	t            *testing.T
	door, defect string
	program      *os.File // of the processes
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

// shrinkTime is how long the failure of a seed may be shrunk.
const shrinkTime = 5 * time.Minute

// one runs a seed, and shrinks its failure.
func (s simulation) one(seed int) {
	s.t.Helper()
	began := time.Now()
	o := s.run(s.t.Context(), seedRun(seed))
	took := time.Since(began)
	s.t.Logf("seed %d: trace %s, %d steps, %v of virtual time", seed, o.Hash, o.Steps, o.Virtual.Round(time.Second))
	s.save(o)
	if o.Failure == "" {
		return
	}
	all, cancel := context.WithTimeout(s.t.Context(), shrinkTime)
	defer cancel()
	began, runs := time.Now(), 0
	small := shrink(o.choices(), func(choices Choices) bool {
		if all.Err() != nil {
			return false
		}
		runs++
		// A candidate that does not end fails in another way.
		ctx, cancel := context.WithTimeout(all, max(10*took, 10*time.Second))
		defer cancel()
		return s.run(ctx, "choices "+choices.String()).Failure != "" && ctx.Err() == nil
	})
	if runs > 0 {
		shrunk := s.run(s.t.Context(), "choices "+small.String())
		s.t.Logf("shrunk from %d choices, %d of them not 0, to %d and %d, in %d runs and %v:\n%s\nCHOICES=%q",
			len(o.choices()), o.choices().faults(), len(small), small.faults(), runs, time.Since(began).Round(time.Second), shrunk.Failure, small)
	}
	s.report(o)
}

// faults counts the choices that are not the harmless ones.
func (c Choices) faults() (count int) {
	for _, choice := range c {
		if choice != 0 {
			count++
		}
	}
	return count
}

func (s simulation) save(o outcome) {
	s.t.Helper()
	if file := os.Getenv("TRACE"); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(o.Trace, "\n")+"\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// shown is how many lines of a trace a failure shows.
const shown = 60

// report fails the test for a run that has failed.
func (s simulation) report(o outcome) {
	s.t.Helper()
	s.save(o)
	if o.Failure != "" {
		s.t.Errorf("%s\ntrace %s ends with:\n%s", o.Failure, o.Hash, strings.Join(o.Trace[max(0, len(o.Trace)-shown):], "\n"))
	}
}

// command repeats a seed.
func (s simulation) command(seed int) string {
	text := fmt.Sprintf("make simulate DOOR=%s SEED=%d", s.door, seed)
	if s.defect != "" {
		text += " DEFECT=" + s.defect
	}
	return text
}

// outcome is the result of a run, from one process to another.
type outcome struct {
	Failure, Hash, Choices string
	Steps                  int
	Virtual                time.Duration
	Trace                  []string
	// cpu is what the process used.
	cpu time.Duration
}

// choices are those of the run; none if its process crashed.
func (o outcome) choices() Choices {
	c, err := ParseChoices(o.Choices)
	if err != nil {
		return nil
	}
	return c
}

// runChild runs what the parent asked for, and prints the outcome.
func runChild(t *testing.T, what string, world World) {
	t.Helper()
	var result Result
	kind, text, _ := strings.Cut(what, " ")
	if kind == "seed" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		result = Run(t, seed, world)
	} else {
		choices, err := ParseChoices(text)
		if err != nil {
			t.Fatal(err)
		}
		result = Replay(t, choices, world)
	}
	o := outcome{Hash: result.Hash, Choices: result.Choices.String(), Steps: result.Steps, Virtual: result.Virtual, Trace: result.Trace}
	if result.Err != nil {
		o.Failure = result.Err.Error()
	}
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s%s\n", outcomeMark, line)
}

// errNoOutcome is that of a process that ended without an outcome.
var errNoOutcome = errors.New("the process ended without an outcome")

// readOutcome finds the outcome in what a process printed.
func readOutcome(output []byte) (o outcome, err error) {
	for line := range strings.Lines(string(output)) {
		if text, ok := strings.CutPrefix(line, outcomeMark); ok {
			return o, json.Unmarshal([]byte(text), &o)
		}
	}
	return o, errNoOutcome
}
