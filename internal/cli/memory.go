package cli

import (
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
)

// gcPercent is the growth of the heap, in percent of the live heap, that starts a
// collection; Go's default is 100. Nearly all of this heap are caches, which change
// seldom, in a process that allocates little and that every node pays for: more
// collections cost some hundredths of a core in a storm and nothing when idle.
const gcPercent = 50

// memoryLimitVariable has the memory limit of the container in bytes. The chart sets it by
// the downward API, which cannot compute the share of it that GOMEMLIMIT needs.
const memoryLimitVariable = "MEMORY_LIMIT"

// limitHeap makes the process small, unless GOGC sets another percentage. It collects
// garbage more often when the process needs four fifths of its container's limit, unless
// GOMEMLIMIT is set: the rest is for mkfs and for the kernel's memory of the container.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit, err := strconv.ParseInt(os.Getenv(memoryLimitVariable), 10, 64)
	if err == nil && limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 5 * 4)
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
