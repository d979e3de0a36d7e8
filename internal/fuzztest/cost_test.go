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

// An input that hangs ends the process, with the stack of what hangs.
func TestWithin_endsAProcessThatHangs(t *testing.T) {
	if os.Getenv("FUZZTEST_HANG") != "" {
		Cost{Time: time.Millisecond}.Within(t, 0, func() { select {} })
		return
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", t.Name())
	command.Env = append(os.Environ(), "FUZZTEST_HANG=1")
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "not done after 1ms") || !strings.Contains(string(output), "TestWithin_endsAProcessThatHangs") {
		t.Errorf("%v\n%s", err, output)
	}
}
