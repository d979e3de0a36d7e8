package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// Volume is a mounted volume and what it does.
type Volume struct {
	// Name is the claim's, and of an inline volume that of the volume.
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Volume    string   `json:"volume"`
	Driver    string   `json:"driver"`
	Pods      []string `json:"pods"`
	Device    string   `json:"device,omitempty"`
	// Rates is nil if the volume has no block device, or had another one before.
	Rates *Rates `json:"rates,omitempty"`
	// Bytes is nil if it is not known how full the volume is.
	Bytes *api.Usage `json:"bytes,omitempty"`
}

// Used is how full the volume is, from 0 to 1, and -1 if that is not known.
func (v Volume) Used() float64 {
	if v.Bytes == nil || v.Bytes.Total <= 0 || v.Bytes.Used == 0 && v.Bytes.Available == 0 {
		return -1
	}
	return min(1, float64(v.Bytes.Used)/float64(v.Bytes.Total))
}

// Driver is a driver with the sums of its volumes.
type Driver struct {
	api.DriverActivity
	// Mounted is the number of the volumes that are mounted; Rates are their sums.
	Mounted int   `json:"mounted"`
	Rates   Rates `json:"rates"`
}

// Report is what a host's volumes and drivers did between two samples.
type Report struct {
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took"`
	Volumes []Volume      `json:"volumes"`
	Drivers []Driver      `json:"drivers"`
	Pools   []api.Pool    `json:"pools"`
}

// Sample is a host's activity, and the pools of its own driver.
type Sample struct {
	api.Activity
	Pools []api.Pool
}

// New compares two samples. The volumes and pools are those of the later one.
func New(before, after Sample) Report {
	took := after.At.Sub(before.At)
	earlier := map[string]api.VolumeActivity{}
	for _, volume := range before.Volumes {
		earlier[identity(volume)] = volume
	}
	report := Report{At: after.At, Took: took, Volumes: []Volume{}, Drivers: []Driver{}, Pools: []api.Pool{}}
	report.Pools = append(report.Pools, after.Pools...)
	sums := map[string]*Driver{}
	for _, driver := range after.Drivers {
		sums[driver.Name] = &Driver{DriverActivity: driver}
	}
	for _, now := range after.Volumes {
		volume := volumeOf(now)
		if was, known := earlier[identity(now)]; known && was.Counters != nil && now.Counters != nil {
			if rates, ok := between(*was.Counters, *now.Counters, took); ok {
				volume.Rates = &rates
			}
		}
		report.Volumes = append(report.Volumes, volume)
		if sum := sums[now.Driver]; sum != nil {
			sum.add(volume.Rates)
		}
	}
	for _, driver := range after.Drivers {
		report.Drivers = append(report.Drivers, *sums[driver.Name])
	}
	return report
}

// identity is equal for samples of the same device of the same volume.
func identity(v api.VolumeActivity) string { return v.Driver + "\x00" + v.Handle + "\x00" + v.Device }

func volumeOf(now api.VolumeActivity) Volume {
	volume := Volume{
		Name: now.Volume, Volume: now.Volume, Driver: now.Driver, Pods: now.Pods, Device: now.Device, Bytes: now.Bytes,
	}
	if namespace, name, ok := strings.Cut(now.Claim, "/"); ok {
		volume.Namespace, volume.Name = namespace, name
	} else if len(now.Pods) > 0 {
		volume.Namespace, _, _ = strings.Cut(now.Pods[0], "/")
	}
	return volume
}

// add counts a mounted volume. A mean latency weighs each volume by its requests.
func (d *Driver) add(rates *Rates) {
	d.Mounted++
	if rates == nil {
		return
	}
	sum := &d.Rates
	sum.ReadLatency = weighed(sum.ReadLatency, sum.Reads, rates.ReadLatency, rates.Reads)
	sum.WriteLatency = weighed(sum.WriteLatency, sum.Writes, rates.WriteLatency, rates.Writes)
	sum.Reads += rates.Reads
	sum.Writes += rates.Writes
	sum.ReadBytes += rates.ReadBytes
	sum.WrittenBytes += rates.WrittenBytes
	sum.InFlight += rates.InFlight
	sum.Busy = max(sum.Busy, rates.Busy)
}

func weighed(a time.Duration, of float64, b time.Duration, by float64) time.Duration {
	if of+by == 0 {
		return 0
	}
	return time.Duration((float64(a)*of + float64(b)*by) / (of + by))
}

// Key is what volumes are sorted by.
type Key string

// The keys. All but SortName put the largest first.
const (
	SortIO      Key = "io" // bytes read and written
	SortRead    Key = "read"
	SortWrite   Key = "write"
	SortIOPS    Key = "iops"
	SortLatency Key = "latency"
	SortBusy    Key = "busy"
	SortUsed    Key = "used"
	SortName    Key = "name"
)

// Keys lists the keys in the order in which they are offered.
func Keys() []Key {
	return []Key{SortIO, SortRead, SortWrite, SortIOPS, SortLatency, SortBusy, SortUsed, SortName}
}

// ParseKey finds a key by its name.
func ParseKey(text string) (Key, error) {
	if key := Key(text); slices.Contains(Keys(), key) {
		return key, nil
	}
	var names []string
	for _, key := range Keys() {
		names = append(names, string(key))
	}
	return "", fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
}

func (k Key) of(v Volume) float64 {
	var rates Rates
	if v.Rates != nil {
		rates = *v.Rates
	}
	switch k {
	case SortRead:
		return rates.ReadBytes
	case SortWrite:
		return rates.WrittenBytes
	case SortIOPS:
		return rates.Reads + rates.Writes
	case SortLatency:
		return float64(rates.Latency())
	case SortBusy:
		return rates.Busy
	case SortUsed:
		return v.Used()
	case SortName:
		return 0
	}
	return rates.ReadBytes + rates.WrittenBytes
}

// Select returns the volumes of a namespace, "" for all, that contain the words in their
// namespace, name, driver, device or pods, sorted by a key and then by name.
func (r Report) Select(namespace, words string, key Key) []Volume {
	selected := []Volume{}
	for _, volume := range r.Volumes {
		if (namespace == "" || volume.Namespace == namespace) && volume.contains(words) {
			selected = append(selected, volume)
		}
	}
	slices.SortStableFunc(selected, func(a, b Volume) int {
		return cmp.Or(cmp.Compare(key.of(b), key.of(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Volume, b.Volume))
	})
	return selected
}

func (v Volume) contains(words string) bool {
	all := strings.ToLower(strings.Join(append([]string{v.Namespace + "/" + v.Name, v.Driver, v.Device}, v.Pods...), " "))
	for word := range strings.FieldsSeq(strings.ToLower(words)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}
