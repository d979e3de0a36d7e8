package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestHeap_isLeftToGOGCIfThatIsSet(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "200")
	for name, set := range map[string]func(){"growHeap": growHeap, "limitHeap": limitHeap} {
		set()
		if got := debug.SetGCPercent(100); got != 100 {
			t.Errorf("%s set %d although GOGC is set", name, got)
		}
	}
	t.Setenv("GOGC", "")
	growHeap()
	if got := debug.SetGCPercent(100); got != startGCPercent {
		t.Errorf("growHeap set %d, want %d", got, startGCPercent)
	}
}

// A small heap may have garbage; a large one has as little as gcPercent says.
func TestHeap_growsWhileItIsSmall(t *testing.T) {
	for _, c := range []struct {
		live, roots uint64
		want        int
	}{
		{0, 0, startGCPercent},
		{4 << 20, 1 << 20, 320},
		{10 << 20, 0, 100},
		{15 << 20, 0, gcPercent},
		{smallHeap, 0, gcPercent},
		{1 << 30, 1 << 20, gcPercent},
	} {
		if got := percentOf(c.live, c.roots); got != c.want {
			t.Errorf("%d live bytes, %d of roots: %d %%, want %d", c.live, c.roots, got, c.want)
		}
	}
}

func TestHeap_isAdjustedAfterEachCollection(t *testing.T) {
	collections := make(chan struct{}, 1)
	afterCollections(func() {
		select {
		case collections <- struct{}{}:
		default: // after the test
		}
	})
	deadline := time.After(time.Minute)
	for i := 0; i < 3; {
		runtime.GC() // one that begins before the next call is prepared does not lead to it
		select {
		case <-collections:
			i++
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("called after %d collections only", i)
		}
	}
}

// The caches of a large cluster do not get as much garbage as those of a small one.
func TestHeap_isAdjustedToWhatIsLive(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	large := make([]byte, 2*smallHeap)
	runtime.GC()
	setGCPercent()
	runtime.KeepAlive(large)
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("%d %% with a large heap, want %d", got, gcPercent)
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
		limitMemory()
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: the heap may have %d bytes, want %d", name, got, c.want)
		}
	}
}
