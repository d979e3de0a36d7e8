package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestHit_nilSetPassesEverything(t *testing.T) {
	var set *Set
	if err := set.Hit("anything"); err != nil {
		t.Fatal(err)
	}
}

func TestHit_failsAtTheNamedPassingOnly(t *testing.T) {
	set, err := Parse("create/intent=error@2")
	if err != nil {
		t.Fatal(err)
	}
	var failures []int
	for passing := 1; passing <= 3; passing++ {
		if err := set.Hit("create/intent"); errors.Is(err, ErrInjected) {
			failures = append(failures, passing)
		}
	}
	if len(failures) != 1 || failures[0] != 2 {
		t.Fatalf("failed at %v; want the second passing", failures)
	}
	if err := set.Hit("create/data"); err != nil {
		t.Fatalf("another point: %v", err)
	}
}

func TestHit_slowWaitsFromThenOn(t *testing.T) {
	set, err := Parse("copy/chunk=slow@2")
	if err != nil {
		t.Fatal(err)
	}
	var slow []bool
	for range 3 {
		waits, err := set.pass("copy/chunk")
		if slow = append(slow, waits); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(slow, []bool{false, true, true}) {
		t.Errorf("it waits: %v", slow)
	}
	begun := time.Now()
	if err := set.Hit("copy/chunk"); err != nil || time.Since(begun) < slowness {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
}

func TestParse_refusesUnknownTerms(t *testing.T) {
	for _, text := range []string{"x", "x=explode", "x=kill@0", "x=kill@many"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestHit_killEndsTheProcessAndTraceNamesThePoint(t *testing.T) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		set, err := FromEnvironment()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(os.Getenv(TraceVariable)) }()
		_ = set.Hit("first")
		_ = set.Hit("second")
		return
	}
	trace := filepath.Join(t.TempDir(), "trace")
	child := exec.Command(os.Args[0], "-test.run", t.Name())
	child.Env = append(os.Environ(), "FAILPOINT_CHILD=1", TermsVariable+"=second=kill", TraceVariable+"="+trace)
	err := child.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the child ended with %v", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v; want SIGKILL", err)
	}
	got, err := os.ReadFile(trace)
	if err != nil || string(got) != "first\nsecond\n" {
		t.Fatalf("trace %q, %v: a deferred call ran, or a name is missing", got, err)
	}
}

func TestHit_killsOnceAtEachPoint(t *testing.T) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		set, err := FromEnvironment()
		if err != nil {
			t.Fatal(err)
		}
		_ = set.Hit("first")
		_ = set.Hit("second")
		return
	}
	trace := filepath.Join(t.TempDir(), "trace")
	for run, dies := range []bool{true, true, false, false} {
		child := exec.Command(os.Args[0], "-test.run", t.Name())
		child.Env = append(os.Environ(), "FAILPOINT_CHILD=1", TermsVariable+"=*=kill-once", TraceVariable+"="+trace)
		if err := child.Run(); (err != nil) != dies {
			t.Fatalf("run %d ended with %v; want it to die: %t", run+1, err, dies)
		}
	}
}

func TestDeciding_getsEachPointWithItsSubject(t *testing.T) {
	var passed []string
	refused := errors.New("refused")
	set := Deciding(func(name, subject string) error {
		passed = append(passed, name+" "+subject)
		if subject == "b" {
			return refused
		}
		return nil
	})
	if err := errors.Join(set.Hit("one"), set.HitFor("two", "a")); err != nil {
		t.Error(err)
	}
	if err := set.HitFor("two", "b"); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if want := []string{"one ", "two a", "two b"}; !slices.Equal(passed, want) {
		t.Errorf("passed %q, want %q", passed, want)
	}
}
