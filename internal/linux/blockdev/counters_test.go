package blockdev

import (
	"testing"
	"time"
)

func TestParseCounters(t *testing.T) {
	want := Counters{
		Reads: 446, ReadBytes: 14090 * 512, ReadTime: 124 * time.Millisecond,
		Writes: 7, WrittenBytes: 80 * 512, WriteTime: 9 * time.Millisecond, InFlight: 2, BusyTime: 132 * time.Millisecond,
	}
	for name, text := range map[string]string{
		"Linux 6.18": "     446        0    14090      124        7        3       80        9        2      132      151        1        0       88        1       11       16\n",
		"Linux 4.17": "446 0 14090 124 7 3 80 9 2 132 151",
	} {
		if got, err := parseCounters(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 x", "1 2 3 4 5 6 7 8 9 -1"} {
		if got, err := parseCounters(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
