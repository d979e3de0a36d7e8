package top

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

func TestBetween(t *testing.T) {
	const ms = time.Millisecond
	before := api.Counters{Reads: 100, ReadBytes: 1 << 20, Writes: 50, WrittenBytes: 1 << 10, ReadTime: 1000 * ms, WriteTime: 10 * ms, BusyTime: 500 * ms}
	for name, test := range map[string]struct {
		after func(*api.Counters)
		took  time.Duration
		want  Rates
		none  bool
	}{
		"idle": {after: func(*api.Counters) {}, took: time.Second},
		"reads and writes": {after: func(c *api.Counters) {
			c.Reads, c.ReadBytes, c.ReadTime = 300, 5<<20, 1800*ms
			c.Writes, c.WrittenBytes, c.WriteTime = 60, 3<<10, 60*ms
			c.BusyTime, c.InFlight = 1500*ms, 7
		}, took: 2 * time.Second, want: Rates{
			Reads: 100, ReadBytes: 2 << 20, ReadLatency: 4 * ms, Writes: 5, WrittenBytes: 1 << 10, WriteLatency: 5 * ms, Busy: .5, InFlight: 7,
		}},
		"busy is at most the whole time": {after: func(c *api.Counters) { c.BusyTime = 3000 * ms }, took: time.Second, want: Rates{Busy: 1}},
		"the kernel's times wrap": {after: func(c *api.Counters) { c.Reads, c.ReadTime = 104, 0 }, took: time.Second,
			want: Rates{Reads: 4, ReadLatency: (wrap - 1000*ms) / 4}},
		"another device of the same name":       {after: func(c *api.Counters) { c.Reads = 3 }, took: time.Second, none: true},
		"another device, seen by its writes":    {after: func(c *api.Counters) { c.Writes = 3 }, took: time.Second, none: true},
		"another device, seen by its bytes":     {after: func(c *api.Counters) { c.Reads, c.ReadBytes = 200, 5 }, took: time.Second, none: true},
		"another device, seen by written bytes": {after: func(c *api.Counters) { c.Writes, c.WrittenBytes = 200, 5 }, took: time.Second, none: true},
		"no time":                               {after: func(*api.Counters) {}, none: true},
		"a clock that went back":                {after: func(*api.Counters) {}, took: -time.Second, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			after := before
			test.after(&after)
			got, ok := between(before, after, test.took)
			if got != test.want || ok == test.none {
				t.Errorf("%+v, %v; want %+v", got, ok, test.want)
			}
		})
	}
}

func TestRates_latencyWeighsByRequests(t *testing.T) {
	if got := (Rates{Reads: 30, ReadLatency: 10, Writes: 10, WriteLatency: 50}).Latency(); got != 20 {
		t.Errorf("%d, want 20", got)
	}
	if got := (Rates{ReadLatency: 10}).Latency(); got != 0 {
		t.Errorf("without requests the latency is %d", got)
	}
}

// sampled is an activity with volumes of claims ns/NAME, whose counters are reads and
// written bytes.
func sampled(second int, volumes ...api.VolumeActivity) Sample {
	return Sample{
		Activity: api.Activity{At: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC), Volumes: volumes, Drivers: []api.DriverActivity{{Name: "d", Volumes: 9}, {Name: "idle"}}},
		Pools:    []api.Pool{{Name: "/pool", Size: int64(second)}},
	}
}

func volumeOn(claim, device string, reads, written uint64, used int64) api.VolumeActivity {
	v := api.VolumeActivity{Volume: "pvc-" + claim, Handle: claim, Claim: claim, Driver: "d", Device: device, Pods: []string{"ns/web"}}
	if device != "" {
		v.Counters = &api.Counters{Reads: reads, ReadTime: time.Duration(reads) * time.Millisecond, WrittenBytes: written}
	}
	if used >= 0 {
		v.Bytes = &api.Usage{Total: 100, Used: used, Available: 100 - used}
	}
	return v
}

func TestNew_comparesTwoSamples(t *testing.T) {
	inline := api.VolumeActivity{Volume: "scratch", Handle: "x", Driver: "d", Device: "loop9", Pods: []string{"other/p"}, Counters: &api.Counters{}}
	report := New(
		sampled(1, volumeOn("ns/a", "loop1", 10, 0, 5), volumeOn("ns/gone", "loop2", 10, 0, 5), volumeOn("ns/moved", "loop3", 10, 0, 5), inline),
		sampled(3, volumeOn("ns/a", "loop1", 30, 4096, 7), volumeOn("ns/moved", "loop4", 90, 0, 5), volumeOn("ns/new", "loop5", 90, 0, -1), volumeOn("ns/nfs", "", 0, 0, 0), inline),
	)
	if report.Took != 2*time.Second || len(report.Volumes) != 5 || len(report.Pools) != 1 || report.Pools[0].Size != 3 {
		t.Fatalf("the report is %+v", report)
	}
	a := report.Volumes[0]
	if a.Namespace != "ns" || a.Name != "a" || a.Rates == nil || a.Rates.Reads != 10 || a.Rates.WrittenBytes != 2048 || a.Rates.ReadLatency != time.Millisecond || a.Used() != .07 {
		t.Errorf("the volume is %+v with %+v", a, a.Rates)
	}
	for _, volume := range report.Volumes[1:4] {
		if volume.Rates != nil {
			t.Errorf("%s has rates without an earlier sample of its device: %+v", volume.Name, volume.Rates)
		}
	}
	if last := report.Volumes[4]; last.Namespace != "other" || last.Name != "scratch" || last.Rates == nil {
		t.Errorf("the inline volume is %+v", last)
	}
	if used := report.Volumes[2].Used(); used != -1 {
		t.Errorf("a volume whose driver does not say is full to %v", used)
	}
	d := report.Drivers[0]
	if d.Name != "d" || d.Volumes != 9 || d.Mounted != 5 || d.Rates.Reads != 10 || d.Rates.ReadLatency != time.Millisecond {
		t.Errorf("the driver is %+v", d)
	}
	if idle := report.Drivers[1]; idle.Mounted != 0 || idle.Rates != (Rates{}) {
		t.Errorf("the idle driver is %+v", idle)
	}
}

func TestDriver_sumsItsVolumes(t *testing.T) {
	var d Driver
	d.add(&Rates{Reads: 10, ReadLatency: 30, ReadBytes: 1, Busy: .2, InFlight: 1})
	d.add(nil)
	d.add(&Rates{Reads: 20, ReadLatency: 60, ReadBytes: 2, Writes: 1, WriteLatency: 5, Busy: .7, InFlight: 2})
	want := Rates{Reads: 30, ReadLatency: 50, ReadBytes: 3, Writes: 1, WriteLatency: 5, Busy: .7, InFlight: 3}
	if d.Rates != want || d.Mounted != 3 {
		t.Errorf("%d volumes with %+v, want 3 with %+v", d.Mounted, d.Rates, want)
	}
}

func TestSelect_sortsAndFilters(t *testing.T) {
	volume := func(namespace, name string, rates *Rates, used int64) Volume {
		v := Volume{Namespace: namespace, Name: name, Driver: "local.example", Rates: rates, Pods: []string{namespace + "/web-" + name}}
		if used >= 0 {
			v.Bytes = &api.Usage{Total: 100, Used: used, Available: 100 - used}
		}
		return v
	}
	report := Report{Volumes: []Volume{
		volume("b", "one", &Rates{ReadBytes: 5, Reads: 1, ReadLatency: 9, Busy: .1}, 10),
		volume("a", "two", &Rates{WrittenBytes: 50, Writes: 3, WriteLatency: 2, Busy: .9}, -1),
		volume("a", "three", nil, 90),
		volume("a", "four", &Rates{ReadBytes: 10, WrittenBytes: 10, Reads: 1, Writes: 1, ReadLatency: 1, WriteLatency: 2, Busy: .5}, 20),
	}}
	names := func(volumes []Volume) string {
		var all []string
		for _, v := range volumes {
			all = append(all, v.Name)
		}
		return strings.Join(all, " ")
	}
	for key, want := range map[Key]string{
		SortIO: "two four one three", SortRead: "four one three two", SortWrite: "two four three one", SortIOPS: "two four one three",
		SortLatency: "one two four three", SortBusy: "two four one three", SortUsed: "three four one two", SortName: "four three two one",
	} {
		if got := names(report.Select("", "", key)); got != want {
			t.Errorf("by %s: %s, want %s", key, got, want)
		}
	}
	for _, test := range []struct{ namespace, words, want string }{
		{"a", "", "four three two"}, {"none", "", ""}, {"", "web-ONE", "one"}, {"", "local two", "two"}, {"b", "two", ""}, {"", "a/t", "three two"},
	} {
		if got := names(report.Select(test.namespace, test.words, SortName)); got != test.want {
			t.Errorf("namespace %q, words %q: %q, want %q", test.namespace, test.words, got, test.want)
		}
	}
	if math.Signbit(SortUsed.of(report.Volumes[0])) {
		t.Error("a known use sorts below an unknown one")
	}
}

func TestParseKey(t *testing.T) {
	for _, key := range Keys() {
		if got, err := ParseKey(string(key)); err != nil || got != key {
			t.Errorf("%s: %s, %v", key, got, err)
		}
	}
	if _, err := ParseKey("size"); err == nil || !strings.Contains(err.Error(), "io, read, write") {
		t.Errorf("got %v", err)
	}
}

// An empty report is lists, and not null, for programs.
func TestNew_ofNothingHasLists(t *testing.T) {
	got := New(Sample{}, Sample{})
	if !reflect.DeepEqual(got, Report{Volumes: []Volume{}, Drivers: []Driver{}, Pools: []api.Pool{}}) {
		t.Errorf("%+v", got)
	}
}
