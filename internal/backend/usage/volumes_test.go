package usage

import (
	"context"
	"errors"
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
volume_io_seconds_total vol-c 1.5
volume_read_bytes_total vol-c 512
volume_read_seconds_total vol-c 1
volume_reads_total vol-c 1
volume_series_omitted 1
volume_size_bytes vol-a 100
volume_size_bytes vol-c 300
volume_unresponsive 1
volume_used_bytes vol-c 30
volume_write_seconds_total vol-c 2
volume_writes_total vol-c 2
volume_written_bytes_total vol-c 1024
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
