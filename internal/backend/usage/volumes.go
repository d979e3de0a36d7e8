package usage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// VolumeState is what this machine does with a volume.
type VolumeState string

// The states of a volume, each of which includes those before it.
const (
	Available VolumeState = "available" // no device of this machine has it
	Attached  VolumeState = "attached"  // it has a device
	Staged    VolumeState = "staged"
	Published VolumeState = "published"
)

func states() []VolumeState { return []VolumeState{Available, Attached, Staged, Published} }

// Volume is a volume of this machine as it was found.
type Volume struct {
	ID     string
	State  VolumeState
	Device string // its name in /sys/class/block; "" if it has none
	Size   int64  // bytes
	// Used are the used bytes of its filesystem, negative if unknown.
	Used int64
	// Frozen: its filesystem was frozen by the driver and is not thawed.
	Frozen bool
	// Unresponsive: its filesystem or device does not answer.
	Unresponsive bool
	Conditions   []string // reasons, as in GetVolumeHealth
}

// Survey lists the volumes of this machine. It may take long, but not for ever.
type Survey func(ctx context.Context) []Volume

// stalled is how long a device may have requests and complete none before its volume
// counts as unresponsive.
const stalled = 30 * time.Second

// Volumes is a collector of the volumes of a machine.
type Volumes struct {
	question concurrency.Background[[]Volume]
	limit    int // of series for single volumes
	counters func(device string) (blockdev.Counters, error)
	now      func() time.Time

	states, conditions, frozen, unresponsive, omitted *prometheus.Desc
	single                                            []single

	mu    sync.Mutex
	idle  map[string]progress // by device
	first map[string]start    // by volume
}

// start has the counters of a device when a volume was first seen on it. A loop device
// has counted for the volumes that had it before, too.
type start struct {
	device   string
	counters blockdev.Counters
}

// progress is the last change of the number of requests that a device completed.
type progress struct {
	completed uint64
	since     time.Time
}

// single is a metric of one volume.
type single struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Volume, blockdev.Counters) float64
}

// NewVolumes returns a collector of a driver's volumes on this machine, with metrics of
// at most limit single volumes.
func NewVolumes(survey Survey, driver string, limit int) *Volumes {
	labels := prometheus.Labels{"driver_name": driver}
	desc := func(name, help string, of ...string) *prometheus.Desc {
		return prometheus.NewDesc("holdfast_"+name, help, of, labels)
	}
	v := &Volumes{
		limit: limit, counters: blockdev.NamedCounters, now: time.Now,
		idle: map[string]progress{}, first: map[string]start{},
		states: desc("volumes", "Volumes of this machine, by state: available, attached (has a device), staged, published.", "state"),
		conditions: desc("volume_condition", "Volumes in use that have a condition which is not normal, by its reason as in "+
			"GetVolumeHealth.", "condition"),
		frozen: desc("filesystem_frozen", "Volumes whose filesystem the driver froze for a snapshot and has not thawed."),
		unresponsive: desc("volume_unresponsive", "Volumes whose filesystem does not answer, or whose device has had requests for "+
			"30 seconds and completed none."),
		omitted: desc("volume_series_omitted", "Volumes in use without metrics of their own, because of --metrics-volumes."),
		single:  singles(driver),
	}
	v.question = concurrency.Background[[]Volume]{Fresh: fresh, Share: share, Ask: func(ctx context.Context) []Volume {
		return v.watch(survey(ctx))
	}}
	return v
}

func singles(driver string) []single {
	metric := func(name, help string, kind prometheus.ValueType, value func(Volume, blockdev.Counters) float64) single {
		return single{prometheus.NewDesc("holdfast_volume_"+name, help, []string{"volume_id"},
			prometheus.Labels{"driver_name": driver}), kind, value}
	}
	counter := func(name, help string, value func(blockdev.Counters) float64) single {
		return metric(name, help, prometheus.CounterValue, func(_ Volume, c blockdev.Counters) float64 { return value(c) })
	}
	return []single{
		metric("size_bytes", "Size of the volume.", prometheus.GaugeValue,
			func(v Volume, _ blockdev.Counters) float64 { return float64(v.Size) }),
		metric("used_bytes", "Used bytes of the volume's filesystem.", prometheus.GaugeValue,
			func(v Volume, _ blockdev.Counters) float64 { return float64(v.Used) }),
		counter("reads_total", "Reads that the volume's device completed since this process first saw it.",
			func(c blockdev.Counters) float64 { return float64(c.Reads) }),
		counter("writes_total", "Writes that the volume's device completed.",
			func(c blockdev.Counters) float64 { return float64(c.Writes) }),
		counter("read_bytes_total", "Bytes that were read from the volume's device.",
			func(c blockdev.Counters) float64 { return float64(c.ReadBytes) }),
		counter("written_bytes_total", "Bytes that were written to the volume's device.",
			func(c blockdev.Counters) float64 { return float64(c.WrittenBytes) }),
		counter("read_seconds_total", "Time of all reads of the volume's device, which may overlap.",
			func(c blockdev.Counters) float64 { return c.ReadTime.Seconds() }),
		counter("write_seconds_total", "Time of all writes of the volume's device, which may overlap.",
			func(c blockdev.Counters) float64 { return c.WriteTime.Seconds() }),
		counter("io_seconds_total", "Time in which the volume's device had requests.",
			func(c blockdev.Counters) float64 { return c.BusyTime.Seconds() }),
	}
}

// watch marks the volumes whose devices have requests and complete none, and notes the
// counters of the devices that volumes got.
func (v *Volumes) watch(volumes []Volume) []Volume {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, seen, first := v.now(), map[string]progress{}, map[string]start{}
	for i, volume := range volumes {
		if volume.Device == "" {
			continue
		}
		counters, err := v.counters(volume.Device)
		if err != nil {
			continue
		}
		if first[volume.ID] = v.first[volume.ID]; first[volume.ID].device != volume.Device {
			first[volume.ID] = start{volume.Device, counters}
		}
		if counters.InFlight == 0 {
			continue
		}
		state := progress{counters.Reads + counters.Writes, now}
		if before, known := v.idle[volume.Device]; known && before.completed == state.completed {
			state.since = before.since
		}
		seen[volume.Device] = state
		volumes[i].Unresponsive = volume.Unresponsive || now.Sub(state.since) >= stalled
	}
	v.idle, v.first = seen, first
	return volumes
}

// Close returns when the volumes are not surveyed any more, or with the context's error.
func (v *Volumes) Close(ctx context.Context) error { return v.question.Close(ctx) }

// Describe implements prometheus.Collector.
func (v *Volumes) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{v.states, v.conditions, v.frozen, v.unresponsive} {
		to <- d
	}
	if v.limit == 0 {
		return
	}
	to <- v.omitted
	for _, s := range v.single {
		to <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (v *Volumes) Collect(to chan<- prometheus.Metric) {
	answer := v.question.Get(patience)
	if answer.At.IsZero() {
		return
	}
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	byState, byCondition, frozen, unresponsive := map[VolumeState]int{}, map[string]int{}, 0, 0
	used := []Volume{}
	for _, volume := range answer.Value {
		byState[volume.State]++
		for _, reason := range volume.Conditions {
			byCondition[reason]++
		}
		if volume.Frozen {
			frozen++
		}
		if volume.Unresponsive {
			unresponsive++
		}
		if volume.Device != "" {
			used = append(used, volume)
		}
	}
	for _, state := range states() {
		gauge(v.states, byState[state], string(state))
	}
	for reason, n := range byCondition {
		gauge(v.conditions, n, reason)
	}
	gauge(v.frozen, frozen)
	gauge(v.unresponsive, unresponsive)
	if v.limit > 0 {
		gauge(v.omitted, max(0, len(used)-v.limit))
		v.collectSingle(to, used)
	}
}

// collectSingle exports the first volumes by their IDs: the same ones at each scrape.
func (v *Volumes) collectSingle(to chan<- prometheus.Metric, used []Volume) {
	slices.SortFunc(used, func(a, b Volume) int { return cmp.Compare(a.ID, b.ID) })
	for _, volume := range used[:min(v.limit, len(used))] {
		counters, err := v.counters(volume.Device)
		counters = since(counters, v.firstOf(volume.ID))
		for _, s := range v.single {
			value := s.value(volume, counters)
			if value < 0 || err != nil && s.kind == prometheus.CounterValue {
				continue
			}
			to <- prometheus.MustNewConstMetric(s.desc, s.kind, value, volume.ID)
		}
	}
}

func (v *Volumes) firstOf(id string) blockdev.Counters {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.first[id].counters
}

// since returns what was counted after the first counters. A time that wrapped begins
// again.
func since(now, first blockdev.Counters) blockdev.Counters {
	return blockdev.Counters{
		Reads: less(now.Reads, first.Reads), ReadBytes: less(now.ReadBytes, first.ReadBytes),
		Writes: less(now.Writes, first.Writes), WrittenBytes: less(now.WrittenBytes, first.WrittenBytes),
		ReadTime: less(now.ReadTime, first.ReadTime), WriteTime: less(now.WriteTime, first.WriteTime),
		BusyTime: less(now.BusyTime, first.BusyTime), InFlight: now.InFlight,
	}
}

func less[T uint64 | time.Duration](now, first T) T {
	if now < first {
		return now
	}
	return now - first
}
