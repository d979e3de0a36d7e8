package fuzztest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// recorder is a test that notes its failure.
type recorder struct {
	testing.TB
	failure string
}

func (*recorder) Helper() {}

func (r *recorder) Fatalf(format string, arguments ...any) {
	r.failure = fmt.Sprintf(format, arguments...)
}

func TestWithin_failsForMemoryOutOfProportion(t *testing.T) {
	cost := Cost{Bytes: 1 << 20, PerByte: 1 << 10}
	var kept []byte
	for _, c := range []struct {
		size, allocates int
		fails           bool
	}{
		{0, 16 << 20, true}, {0, 512 << 10, false}, {16 << 10, 16 << 20, false}, {1 << 10, 16 << 20, true},
	} {
		r := &recorder{TB: t}
		cost.Within(r, c.size, func() { kept = make([]byte, c.allocates) })
		if (r.failure != "") != c.fails {
			t.Errorf("%d bytes for an input of %d: failure %q, want one: %t", len(kept), c.size, r.failure, c.fails)
		}
	}
}

// An input that waits for ever, or that computes for ever, ends the process: with the
// stack of what waits, as the stack of what computes on another thread cannot be read.
func TestWithin_endsAProcessThatHangs(t *testing.T) {
	hangs := map[string]func(){
		"waits": func() { Cost{Wall: time.Millisecond}.Within(t, 0, func() { select {} }) },
		"computes": func() {
			Cost{CPU: time.Millisecond}.Within(t, 0, func() {
				for {
					_ = allocated()
				}
			})
		},
	}
	if hang := hangs[os.Getenv("FUZZTEST_HANG")]; hang != nil {
		hang()
		return
	}
	for name := range hangs {
		if name == "computes" && processTime() == 0 {
			continue // the system does not say
		}
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", t.Name())
		command.Env = append(os.Environ(), "FUZZTEST_HANG="+name)
		output, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(output), "is not done after") || name == "waits" && !strings.Contains(string(output), "TestWithin_endsAProcessThatHangs") {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
	}
}
