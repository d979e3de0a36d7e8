package usage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

func TestVolumes_page(t *testing.T) {
	volumes := []Volume{
		{ID: "vol-c", State: Published, Device: "loop3", Size: 300, Used: 30, Conditions: []string{"FilesystemReadOnly"}},
		{ID: "vol-a", State: Staged, Device: "loop1", Size: 100, Used: -1, Frozen: true},
		{ID: "vol-b", State: Available, Used: -1},
		{ID: "vol-d", State: Published, Device: "loop4", Unresponsive: true, Used: -1, Conditions: []string{"FilesystemReadOnly"}},
	}
	v := NewVolumes(func(context.Context) []Volume { return volumes }, "d", 2)
	v.counters = func(device string) (blockdev.Counters, error) {
		if device == "loop1" {
			return blockdev.Counters{}, errors.New("it went away")
		}
		return blockdev.Counters{Reads: 1, ReadBytes: 512, Writes: 2, WrittenBytes: 1024, ReadTime: time.Second, WriteTime: 2 * time.Second, BusyTime: 1500 * time.Millisecond}, nil
	}
	want := `filesystem_frozen 1
volume_condition FilesystemReadOnly 2
volume_io_seconds_total vol-c 0
volume_read_bytes_total vol-c 0
volume_read_seconds_total vol-c 0
volume_reads_total vol-c 0
volume_series_omitted 1
volume_size_bytes vol-a 100
volume_size_bytes vol-c 300
volume_unresponsive 1
volume_used_bytes vol-c 30
volume_write_seconds_total vol-c 0
volume_writes_total vol-c 0
volume_written_bytes_total vol-c 0
volumes attached 0
volumes available 1
volumes published 2
volumes staged 1`
	if got := page(t, v); got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
}

// A device is unresponsive if it has requests and completed none for long enough.
func TestVolumes_noticeADeviceThatCompletesNothing(t *testing.T) {
	now, state := time.Unix(1e9, 0), blockdev.Counters{}
	v := NewVolumes(nil, "d", 0)
	v.now = func() time.Time { return now }
	v.counters = func(string) (blockdev.Counters, error) { return state, nil }
	for i, step := range []struct {
		after              time.Duration
		inFlight, complete uint64
		unresponsive       bool
	}{
		{0, 0, 10, false},
		{stalled, 3, 10, false}, // the requests may be new
		{stalled / 2, 3, 10, false},
		{stalled / 2, 3, 10, true},
		{stalled, 3, 10, true},
		{time.Second, 3, 11, false}, // one was completed
		{stalled, 3, 11, true},
		{time.Second, 0, 14, false},
		{stalled, 1, 14, false},
	} {
		now = now.Add(step.after)
		state = blockdev.Counters{InFlight: step.inFlight, Reads: step.complete / 2, Writes: step.complete - step.complete/2}
		got := v.watch([]Volume{{ID: "vol-a", Device: "loop1"}, {ID: "vol-b"}})
		if got[0].Unresponsive != step.unresponsive || got[1].Unresponsive {
			t.Errorf("step %d: unresponsive is %t", i, got[0].Unresponsive)
		}
	}
}

// A device has counted for other volumes before, and a volume may get another device: its
// own counters begin at zero each time, which Prometheus takes for a restart.
func TestVolumes_countWhatTheVolumeDid(t *testing.T) {
	counted := map[string]blockdev.Counters{"loop1": {Reads: 100, ReadBytes: 1 << 20, ReadTime: time.Minute}, "loop2": {Reads: 7000}}
	device := "loop1"
	v := NewVolumes(func(context.Context) []Volume {
		return []Volume{{ID: "vol-a", State: Staged, Device: device, Used: -1}}
	}, "d", 1)
	v.question.Fresh, v.question.Share = 0, 0
	v.counters = func(device string) (blockdev.Counters, error) { return counted[device], nil }
	for i, c := range []struct {
		device string
		adds   uint64
		want   string
	}{
		{"loop1", 0, "volume_reads_total vol-a 0\n"},
		{"loop1", 5, "volume_reads_total vol-a 5\n"},
		{"loop2", 0, "volume_reads_total vol-a 0\n"},
		{"loop2", 3, "volume_reads_total vol-a 3\n"},
	} {
		device = c.device
		page(t, v) // the survey sees the device
		state := counted[c.device]
		state.Reads += c.adds
		counted[c.device] = state
		if got := page(t, v); !strings.Contains(got, c.want) {
			t.Errorf("step %d: the page has\n%s\nwant %s", i, got, c.want)
		}
	}
}
