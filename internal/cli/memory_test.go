package cli

import (
	"runtime/debug"
	"testing"
)

func TestHeap_isLeftToGOGCIfThatIsSet(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for name, step := range map[string]struct {
		set  func()
		want int
	}{"growHeap": {growHeap, startGCPercent}, "limitHeap": {limitHeap, gcPercent}} {
		t.Setenv("GOGC", "200")
		step.set()
		if got := debug.SetGCPercent(100); got != 100 {
			t.Errorf("%s set %d although GOGC is set", name, got)
		}
		t.Setenv("GOGC", "")
		step.set()
		if got := debug.SetGCPercent(100); got != step.want {
			t.Errorf("%s set %d, want %d", name, got, step.want)
		}
	}
}

func TestHeap_isLimitedByTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for name, c := range map[string]struct {
		container, gomemlimit string
		want                  int64
	}{
		"a limit":              {"1073741824", "", 858993456},
		"a limit and Go's own": {"1073741824", "5MiB", 1 << 40},
		"none":                 {"", "", 1 << 40},
		"not a number":         {"512Mi", "", 1 << 40},
	} {
		debug.SetMemoryLimit(1 << 40)
		t.Setenv(memoryLimitVariable, c.container)
		t.Setenv("GOMEMLIMIT", c.gomemlimit)
		limitHeap()
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: the heap may have %d bytes, want %d", name, got, c.want)
		}
	}
}
