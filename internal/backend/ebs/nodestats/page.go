// Package nodestats reads the statistics that an EBS volume shows to its instance in a
// page of the NVMe log: operations, bytes, time, how long the limits of the volume and of
// the instance were exceeded, the queue, and histograms of latency (EBS user guide,
// "Amazon EBS detailed performance statistics"). They need no EC2 call and no
// credentials.
package nodestats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The layout of the page; numbers are little-endian (EBS user guide, see above).
const (
	pageSize  = 4096
	pageMagic = 0x3C23B510

	countersAt          = 8   // eleven numbers of 64 bits
	readLatencyAt       = 512 // a histogram
	writeLatencyAt      = 2056
	histogramBins       = 64
	binsAt              = 8 // in a histogram, after the number of bins
	binSize             = 24
	histogramSize       = binsAt + histogramBins*binSize
	_              uint = writeLatencyAt - readLatencyAt - histogramSize // they do not overlap
	_              uint = pageSize - writeLatencyAt - histogramSize
)

// ErrNotAPage reports that the answer of a disk is not the page of an EBS volume.
var ErrNotAPage = errors.New("not the statistics of an EBS volume")

// Page has the counters of a volume since it was attached.
type Page struct {
	ReadOperations, WriteOperations uint64
	ReadBytes, WriteBytes           uint64
	// ReadTime and WriteTime are the sums for all operations.
	ReadTime, WriteTime time.Duration
	// How long the demand exceeded the limits of the volume and of the instance.
	VolumeIOPSExceeded, VolumeThroughputExceeded     time.Duration
	InstanceIOPSExceeded, InstanceThroughputExceeded time.Duration
	// QueueLength is the number of operations that are under way.
	QueueLength uint64
	// ReadLatency and WriteLatency have ascending bounds.
	ReadLatency, WriteLatency []Bin
}

// Bin counts the operations that took less than Below, and at least the Below of the bin
// before.
type Bin struct {
	Below time.Duration // Unbounded for the last bin
	Count uint64
}

// Unbounded is the Below of a bin without an upper bound.
const Unbounded time.Duration = 1<<63 - 1

// Parse reads a page. Data after the page is ignored.
func Parse(data []byte) (Page, error) {
	if len(data) < pageSize {
		return Page{}, fmt.Errorf("%w: it has %d bytes, less than %d", ErrNotAPage, len(data), pageSize)
	}
	if magic := binary.LittleEndian.Uint32(data); magic != pageMagic {
		return Page{}, fmt.Errorf("%w: it begins with %#08x and not with %#08x", ErrNotAPage, magic, pageMagic)
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(data[countersAt+8*i:]) }
	p := Page{
		ReadOperations: number(0), WriteOperations: number(1), ReadBytes: number(2), WriteBytes: number(3),
		ReadTime: microseconds(number(4)), WriteTime: microseconds(number(5)),
		VolumeIOPSExceeded: microseconds(number(6)), VolumeThroughputExceeded: microseconds(number(7)),
		InstanceIOPSExceeded: microseconds(number(8)), InstanceThroughputExceeded: microseconds(number(9)),
		QueueLength: number(10),
	}
	var err error
	if p.ReadLatency, err = parseHistogram(data[readLatencyAt:][:histogramSize]); err != nil {
		return Page{}, fmt.Errorf("latency of reading: %w", err)
	}
	if p.WriteLatency, err = parseHistogram(data[writeLatencyAt:][:histogramSize]); err != nil {
		return Page{}, fmt.Errorf("latency of writing: %w", err)
	}
	return p, nil
}

func parseHistogram(data []byte) ([]Bin, error) {
	count := binary.LittleEndian.Uint64(data)
	if count > histogramBins {
		return nil, fmt.Errorf("%w: a histogram has %d bins, more than %d", ErrNotAPage, count, histogramBins)
	}
	bins := make([]Bin, count)
	for i := range bins {
		bin := data[binsAt+i*binSize:]
		bins[i] = Bin{
			Below: microseconds(binary.LittleEndian.Uint64(bin[8:])),
			Count: uint64(binary.LittleEndian.Uint32(bin[16:])),
		}
		if i > 0 && bins[i].Below <= bins[i-1].Below {
			return nil, fmt.Errorf("%w: bin %d of a histogram ends at %v, and the one before at %v",
				ErrNotAPage, i, bins[i].Below, bins[i-1].Below)
		}
	}
	return bins, nil
}

// microseconds saturates at the longest duration, 292 years.
func microseconds(n uint64) time.Duration {
	if n > uint64(Unbounded/time.Microsecond) {
		return Unbounded
	}
	return time.Duration(n) * time.Microsecond
}
