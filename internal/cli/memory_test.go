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
