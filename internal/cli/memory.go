package cli

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// gcPercent is the growth of the heap, in percent of the live heap, that starts a
// collection; Go's default is 100. Nearly all of this heap are caches, which change
// seldom, in a process that allocates little and that every node pays for: more
// collections cost some hundredths of a core in a storm and nothing when idle.
const gcPercent = 50

// smallHeap is the size in bytes up to which a heap may grow between two collections,
// whatever part of it is live. With a live heap of a few MiB, gcPercent alone would
// collect so often that a storm of claims costs a quarter more CPU.
const smallHeap = 20 << 20

// memoryLimitVariable has the memory limit of the container in bytes. The chart sets it by
// the downward API, which cannot compute the share of it that GOMEMLIMIT needs.
const memoryLimitVariable = "MEMORY_LIMIT"

// limitHeap makes the process small, unless GOGC sets another percentage. Call it once.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		afterCollections(setGCPercent)
	}
	limitMemory()
}

// limitMemory collects garbage more often when the process needs four fifths of its
// container's limit, unless GOMEMLIMIT is set: the rest is for mkfs and for the kernel's
// memory of the container.
func limitMemory() {
	limit, err := strconv.ParseInt(os.Getenv(memoryLimitVariable), 10, 64)
	if err == nil && limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 5 * 4)
	}
}

// afterCollections calls do after each collection of garbage. It costs nothing between
// two collections.
func afterCollections(do func()) {
	type garbage struct{ _ [64]byte } // large enough for an allocation of its own
	runtime.AddCleanup(&garbage{}, func(do func()) {
		do()
		afterCollections(do)
	}, do)
}

// setGCPercent sets the percentage for the live heap of the last collection.
func setGCPercent() {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(samples)
	percent := percentOf(samples[0].Value.Uint64(), samples[1].Value.Uint64()+samples[2].Value.Uint64())
	now := int(samples[3].Value.Uint64()) //nolint:gosec // a percentage
	// Each change stops the program for an instant.
	if max(percent, now)-min(percent, now) >= gcPercent/5 {
		debug.SetGCPercent(percent)
	}
}

// percentOf is the percentage that lets a heap grow to smallHeap, or by gcPercent if that
// is more. roots are the bytes that Go's pacer adds to the live heap
// (https://go.dev/doc/gc-guide#GOGC).
func percentOf(live, roots uint64) int {
	if live >= smallHeap {
		return gcPercent
	}
	percent := (smallHeap - live) * 100 / max(live+roots, 1)
	return int(min(max(percent, gcPercent), startGCPercent)) //nolint:gosec // between the two
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
