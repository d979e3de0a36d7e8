package cli

import (
	"runtime/debug"
	"testing"
)

func TestLimitHeap_leavesItToGOGCWhereThatIsSet(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "200")
	limitHeap()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("the program set %d although GOGC is set", got)
	}
	t.Setenv("GOGC", "")
	limitHeap()
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("the program left %d, want %d", got, gcPercent)
	}
}
