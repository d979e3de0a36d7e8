package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Counters are what the kernel has counted for a block device since it exists
// (Documentation/block/stat.rst). The times wrap after 2³² ms.
type Counters struct {
	Reads, ReadBytes     uint64
	Writes, WrittenBytes uint64
	// ReadTime and WriteTime are the sums of the times of all requests; BusyTime is the
	// time in which at least one ran.
	ReadTime, WriteTime, BusyTime time.Duration
	// InFlight are the requests that run now.
	InFlight uint64
}

// NamedCounters reads the counters of a device by its name, such as loop3.
func NamedCounters(name string) (Counters, error) {
	return readCounters(filepath.Join("/sys/class/block", filepath.Base(name), "stat"))
}

// NameOf returns the name of a device by its number.
func NameOf(major, minor uint32) (string, error) {
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	if err != nil {
		return "", fmt.Errorf("block device %d:%d: %w", major, minor, err)
	}
	return filepath.Base(link), nil
}

func readCounters(path string) (Counters, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Counters{}, fmt.Errorf("counters of a block device: %w", err)
	}
	counters, err := parseCounters(string(data))
	if err != nil {
		return Counters{}, fmt.Errorf("counters of a block device: %s: %w", path, err)
	}
	return counters, nil
}

// statSector is the unit of sectors in this file, whatever the device's sectors are.
const statSector = 512

// parseCounters reads the first ten fields. Newer kernels have more.
func parseCounters(text string) (Counters, error) {
	words := strings.Fields(text)
	if len(words) < 10 {
		return Counters{}, fmt.Errorf("%q has %d numbers, and not 10 or more", text, len(words))
	}
	var n [10]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(words[i], 10, 64); err != nil {
			return Counters{}, fmt.Errorf("%q is not a number", words[i])
		}
	}
	milliseconds := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond } //nolint:gosec // 32 bits
	return Counters{
		Reads: n[0], ReadBytes: n[2] * statSector, ReadTime: milliseconds(n[3]),
		Writes: n[4], WrittenBytes: n[6] * statSector, WriteTime: milliseconds(n[7]),
		InFlight: n[8], BusyTime: milliseconds(n[9]),
	}, nil
}
