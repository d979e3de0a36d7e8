package cli

import (
	"os"
	"runtime/debug"
)

// gcPercent is how far the heap grows over what is live before it is collected;
// Go's own is 100. Nearly all of this heap are caches, which change seldom, in a
// process that allocates little and that every node pays for: more collections
// cost some hundredths of a core in a storm and nothing when idle.
const gcPercent = 50

// limitHeap makes the process small, unless GOGC says how it is to be.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
