// Package overlay writes the overlay of source files (`go build -overlay`) with which a
// simulation is compiled: the Go runtime without randomness in bubbles of testing/synctest,
// and, to measure the power of a simulation, the product with a known defect.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Change replaces a text of a source file.
type Change struct {
	// File is absolute, or relative to the root of the module.
	File     string
	Old, New string // with no Old it is a new file
}

// cacheUsed begins the part of an interface's cache in the runtime.
const cacheUsed = "	if !abi.UseInterfaceSwitchCache(goarch.ArchFamily) {\n"

// Runtime are the changes of the runtime in a GOROOT. In a bubble, the order of equal timers,
// the choice of select among ready cases, the order of maps and the global functions of
// math/rand come from a generator of the bubble, which begins equal in each bubble. The
// hash functions of maps are those of every process. Type switches have no caches, which are
// made at random and move what is allocated later, and with it the order of maps by pointers.
//
// However slow the machine is, a mutex is not handed over to the goroutine that has waited for
// it for 1 ms. In a process with GOGC=off, one thread runs all goroutines: none is interrupted
// while it runs, no other one takes over while one is in a system call, and none is locked to
// its thread. The memory of a second thread would move what is allocated later.
//
// Two changes are for speed alone: the heap has huge pages, and a goroutine begins with 16 KB of
// stack, so that few are copied to larger ones.
func Runtime(goroot string) []Change {
	file := func(name string) string { return filepath.Join(goroot, "src", "runtime", name) }
	return []Change{
		{file("synctest.go"), "	id      uint64 // unique id\n", "	id      uint64 // unique id\n	random  uint64\n"},
		{file("rand.go"), "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n"},
		{file("rand.go"), "	mp := getg().m\n	c := &mp.chacha8\n", "	if b := getg().bubble; b != nil {\n		return bubbleRandom(b)\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
		{file("rand.go"), "func maps_rand() uint64 {\n", "func maps_rand() uint64 {\n	if getg().bubble == nil {\n		return 0x9e3779b97f4a7c15\n	}\n"},
		{file("rand.go"), "//go:linkname maps_rand", `// bubbleRandom is SplitMix64.
//
//go:nosplit
func bubbleRandom(b *synctestBubble) uint64 {
	b.random += 0x9e3779b97f4a7c15
	z := b.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// orderRandom is cheaprand for the orders that a program can observe.
func orderRandom() uint32 {
	if b := getg().bubble; b != nil {
		return uint32(bubbleRandom(b) >> 32)
	}
	return cheaprand()
}

//go:linkname maps_rand`},
		{file("select.go"), "j := cheaprandn(uint32(norder + 1))", "j := uint32((uint64(orderRandom()) * uint64(norder+1)) >> 32)"},
		{file("time.go"), "t.rand = cheaprand()", "t.rand = orderRandom()"},
		{filepath.Join(goroot, "src", "internal", "sync", "mutex.go"), "	starvationThresholdNs = 1e6\n", "	starvationThresholdNs = 1 << 62\n"},
		{
			file("proc.go"), "func retake(now int64) uint32 {\n	n := 0\n",
			"func retake(now int64) uint32 {\n	if gcController.gcPercent.Load() < 0 {\n		return 0\n	}\n	n := 0\n",
		},
		{
			file("proc.go"), "func dolockOSThread() {\n",
			"func dolockOSThread() {\n	if gcController.gcPercent.Load() < 0 {\n		return\n	}\n",
		},
		{
			file("mheap.go"), "	sysMap(unsafe.Pointer(v), nBase-v, &gcController.heapReleased, \"heap\")\n",
			"	sysMap(unsafe.Pointer(v), nBase-v, &gcController.heapReleased, \"heap\")\n	sysHugePage(unsafe.Pointer(v), nBase-v)\n",
		},
		{file("stack.go"), "var startingStackSize uint32 = fixedStack\n", "var startingStackSize uint32 = 8 * fixedStack\n"},
		{file("iface.go"), cacheUsed + "		return case_, tab\n", "	if getg() != nil {\n		return case_, tab\n"},
		{file("iface.go"), cacheUsed + "		return tab\n", "	if getg() != nil || !abi.UseInterfaceSwitchCache(goarch.ArchFamily) {\n		return tab\n"},
	}
}

// Write writes the changed files and overlay.json into a directory, and returns the path of
// the latter. A text that a file has not exactly once is an error: the change no longer fits.
func Write(directory, root string, changes []Change) (path string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	texts, replace := map[string]string{}, map[string]string{}
	for i, change := range changes {
		file := change.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(root, file)
		}
		text, known := texts[file]
		if !known && change.Old == "" {
			replace[file] = filepath.Join(directory, strconv.Itoa(i)+"_"+filepath.Base(file))
			texts[file] = change.New
			continue
		}
		if !known {
			read, err := os.ReadFile(file) //nolint:gosec // a source file
			if err != nil {
				return "", fmt.Errorf("overlay: %w", err)
			}
			text = string(read)
			replace[file] = filepath.Join(directory, strconv.Itoa(i)+"_"+filepath.Base(file))
		}
		if count := strings.Count(text, change.Old); count != 1 {
			return "", fmt.Errorf("overlay: %s has the text %d times, want once: %q", file, count, change.Old)
		}
		texts[file] = strings.Replace(text, change.Old, change.New, 1)
	}
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	for file, text := range texts {
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("overlay: %w", err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	path = filepath.Join(directory, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
