package cli

import (
	"log/slog"
	"os"
	"runtime/debug"
)

// gcPercent is the growth of the heap, in percent of the live heap, that starts a
// collection; Go's default is 100. Nearly all of this heap are caches, which change
// seldom, in a process that allocates little and that every node pays for: more
// collections cost some hundredths of a core in a storm and nothing when idle.
const gcPercent = 50

// limitHeap makes the process small, unless GOGC says how it is to be.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// startGCPercent delays the first collection of a process that lives for a moment
// until its heap has 32 MiB (Go's minimum is 4 MiB at 100 percent).
const startGCPercent = 800

// growHeap lets the heap grow while a command starts, unless GOGC is set. The
// collections of a start free little and take an eighth of the time from the
// start of a run to the first line of its workload, on two cores. limitHeap ends it.
func growHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startGCPercent)
	}
}

// releaseMemory returns memory to the system that a burst of work, or the start, needed.
func releaseMemory(logger *slog.Logger) {
	debug.FreeOSMemory()
	if err := releaseFilePages(); err != nil {
		logger.Debug("pages of the program's file stay resident", "error", err)
	}
}
