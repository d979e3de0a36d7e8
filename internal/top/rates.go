// Package top turns two samples of a host's activity into rows that say what its volumes
// and drivers do now. It is pure; the command line shows the rows.
package top

import (
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// Rates are what a block device does in a second.
type Rates struct {
	Reads        float64 `json:"reads"`
	Writes       float64 `json:"writes"`
	ReadBytes    float64 `json:"readBytes"`
	WrittenBytes float64 `json:"writtenBytes"`
	// ReadLatency and WriteLatency are the mean times of the requests that ended, in
	// nanoseconds; 0 if none did.
	ReadLatency  time.Duration `json:"readLatency"`
	WriteLatency time.Duration `json:"writeLatency"`
	// Busy is the part of the time in which at least one request ran, from 0 to 1.
	Busy float64 `json:"busy"`
	// InFlight are the requests that run now.
	InFlight uint64 `json:"inFlight"`
}

// Latency is the mean time of all requests.
func (r Rates) Latency() time.Duration {
	total := r.Reads + r.Writes
	if total == 0 {
		return 0
	}
	return time.Duration((float64(r.ReadLatency)*r.Reads + float64(r.WriteLatency)*r.Writes) / total)
}

// between returns the rates between two samples; false if the counters began again, as
// those of a device that was attached anew.
func between(before, after api.Counters, took time.Duration) (Rates, bool) {
	seconds := took.Seconds()
	if seconds <= 0 || after.Reads < before.Reads || after.Writes < before.Writes ||
		after.ReadBytes < before.ReadBytes || after.WrittenBytes < before.WrittenBytes {
		return Rates{}, false
	}
	reads, writes := after.Reads-before.Reads, after.Writes-before.Writes
	return Rates{
		Reads: float64(reads) / seconds, Writes: float64(writes) / seconds,
		ReadBytes:    float64(after.ReadBytes-before.ReadBytes) / seconds,
		WrittenBytes: float64(after.WrittenBytes-before.WrittenBytes) / seconds,
		ReadLatency:  mean(since(before.ReadTime, after.ReadTime), reads),
		WriteLatency: mean(since(before.WriteTime, after.WriteTime), writes),
		Busy:         min(1, since(before.BusyTime, after.BusyTime).Seconds()/seconds),
		InFlight:     after.InFlight,
	}, true
}

// wrap is after how long the kernel's times begin again: they are 32-bit numbers of
// milliseconds.
const wrap = (1 << 32) * time.Millisecond

func since(before, after time.Duration) time.Duration {
	if after < before {
		return after + wrap - before
	}
	return after - before
}

func mean(total time.Duration, requests uint64) time.Duration {
	if requests == 0 {
		return 0
	}
	return total / time.Duration(requests) //nolint:gosec // fewer than 2⁶³
}
