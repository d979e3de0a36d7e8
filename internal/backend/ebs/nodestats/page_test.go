package nodestats

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// field is a number at an offset of a page.
type field struct {
	at    int
	width int // bytes
	value uint64
}

// page makes a page by the table of the EBS user guide, with its own offsets.
func page(fields ...field) []byte {
	data := make([]byte, 4096)
	for _, f := range append([]field{{0, 4, 0x3C23B510}}, fields...) {
		switch f.width {
		case 4:
			binary.LittleEndian.PutUint32(data[f.at:], uint32(f.value))
		case 8:
			binary.LittleEndian.PutUint64(data[f.at:], f.value)
		}
	}
	return data
}

// bin is one of a histogram that begins at an offset.
func bin(histogram, i int, below, count uint64) []field {
	at := histogram + 8 + 24*i
	return []field{{at + 8, 8, below}, {at + 16, 4, count}}
}

func full() []byte {
	fields := []field{
		{8, 8, 1}, {16, 8, 2}, {24, 8, 3}, {32, 8, 4}, {40, 8, 5}, {48, 8, 6}, {56, 8, 7}, {64, 8, 8},
		{72, 8, 9}, {80, 8, 10}, {88, 8, 11}, {512, 8, 2}, {2056, 8, 64},
	}
	fields = append(fields, bin(512, 0, 128, 12)...)
	fields = append(fields, bin(512, 1, math.MaxUint64, math.MaxUint32)...)
	for i := range 64 {
		fields = append(fields, bin(2056, i, uint64(i+1), uint64(i))...)
	}
	return page(fields...)
}

func TestParse_readsEveryFieldOfThePage(t *testing.T) {
	got, err := Parse(append(full(), make([]byte, 4096)...))
	if err != nil {
		t.Fatal(err)
	}
	want := Page{
		ReadOperations: 1, WriteOperations: 2, ReadBytes: 3, WriteBytes: 4, ReadTime: 5 * time.Microsecond, WriteTime: 6 * time.Microsecond,
		VolumeIOPSExceeded: 7 * time.Microsecond, VolumeThroughputExceeded: 8 * time.Microsecond,
		InstanceIOPSExceeded: 9 * time.Microsecond, InstanceThroughputExceeded: 10 * time.Microsecond, QueueLength: 11,
		ReadLatency: []Bin{{128 * time.Microsecond, 12}, {Unbounded, math.MaxUint32}},
	}
	for i := range 64 {
		want.WriteLatency = append(want.WriteLatency, Bin{time.Duration(i+1) * time.Microsecond, uint64(i)})
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

func TestParse_rejectsAnInvalidPage(t *testing.T) {
	cases := map[string]struct {
		data  []byte
		words string
	}{
		"nothing":                {nil, "0 bytes"},
		"a byte short":           {full()[:4095], "4095 bytes"},
		"zeros":                  {make([]byte, 4096), "0x00000000"},
		"another magic":          {page(field{0, 4, 0x10B5233C}), "0x10b5233c"},
		"too many bins":          {page(field{512, 8, 65}), "reading: not the statistics"},
		"too many bins of write": {page(field{2056, 8, math.MaxUint64}), "writing: not the statistics"},
		"bounds that descend":    {page(append(append(bin(512, 0, 9, 1), bin(512, 1, 8, 1)...), field{512, 8, 2})...), "bin 1"},
		"one bound twice":        {page(append(append(bin(2056, 0, 9, 1), bin(2056, 1, 9, 1)...), field{2056, 8, 2})...), "bin 1"},
	}
	for name, c := range cases {
		_, err := Parse(c.data)
		if !errors.Is(err, ErrNotAPage) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want words of %q", name, err, c.words)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full())
	f.Add(page())
	f.Add([]byte("not a page"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			return
		}
		for _, bins := range [][]Bin{p.ReadLatency, p.WriteLatency} {
			last := time.Duration(-1)
			for _, b := range bins {
				if b.Below <= last {
					t.Fatalf("bounds %v do not ascend", bins)
				}
				last = b.Below
			}
		}
		if p.ReadTime < 0 || p.WriteTime < 0 || p.VolumeIOPSExceeded < 0 || p.InstanceThroughputExceeded < 0 {
			t.Fatalf("time runs backwards: %+v", p)
		}
	})
}
