package host

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

func gpt(size int64, partitions ...win32.Partition) win32.DriveLayout {
	for i := range partitions {
		partitions[i].Style = win32.StyleGPT
	}
	return win32.DriveLayout{
		Style: win32.StyleGPT, DiskID: win32.GUID{1}, UsableOffset: 34 * 512, UsableLength: size - 67*512,
		MaxPartitions: 128, Partitions: partitions,
	}
}

func reserved(offset int64) win32.Partition {
	return win32.Partition{Number: 1, Offset: offset, Length: 16 * mebi, Type: win32.PartitionReserved, ID: win32.GUID{2}}
}

func data(number uint32, offset, length int64) win32.Partition {
	return win32.Partition{Number: number, Offset: offset, Length: length, Type: win32.PartitionBasicData, ID: win32.GUID{byte(number), 3}}
}

func TestUseOf_readsTheTable(t *testing.T) {
	mbr := func(kind uint8) win32.DriveLayout {
		return win32.DriveLayout{Style: win32.StyleMBR, Partitions: []win32.Partition{
			{Style: win32.StyleMBR, MBRType: kind, Offset: mebi, Length: mebi}, {Style: win32.StyleMBR},
			{Style: win32.StyleMBR}, {Style: win32.StyleMBR},
		}}
	}
	linux := data(1, mebi, gibi)
	linux.Type = win32.GUID{0xaf}
	for name, test := range map[string]struct {
		layout win32.DriveLayout
		want   diskUse
	}{
		"no table":                       {win32.DriveLayout{Style: win32.StyleRaw}, unpartitioned},
		"an empty GPT":                   {gpt(gibi), initialised},
		"a GPT with empty entries":       {gpt(gibi, win32.Partition{}), initialised},
		"the reserved partition only":    {gpt(gibi, reserved(mebi)), initialised},
		"a data partition":               {gpt(gibi, reserved(mebi), data(2, 17*mebi, mebi)), partitioned},
		"another system's kind":          {gpt(2*gibi, linux), partitioned},
		"an MBR counts as partitioned":   {mbr(7), partitioned},
		"an MBR of Linux":                {mbr(0x83), partitioned},
		"an MBR with four empty entries": {mbr(0), unusable},
	} {
		if got := useOf(test.layout); got != test.want {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
}

// The rules of a planned table, for disks of all sizes and with leftovers.
func TestPlanPartitions_properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sector := rapid.SampledFrom([]int64{512, 4096}).Draw(t, "sector")
		size := rapid.Int64Range(1, 1<<44).Draw(t, "size") / sector * sector
		layout := gpt(size)
		if rapid.Bool().Draw(t, "reserved") {
			layout = gpt(size, reserved(alignUp(rapid.Int64Range(mebi, max(mebi, size)).Draw(t, "at"))))
		}
		ids := byte(10)
		planned, data, err := planPartitions(layout, func() win32.GUID { ids++; return win32.GUID{ids} })
		if err != nil {
			if !errors.Is(err, backend.ErrPrecondition) {
				t.Fatal(err)
			}
			if largestGap(layout).length >= leastData+reservedLength {
				t.Fatalf("refused, with %d bytes in one piece", largestGap(layout).length)
			}
			return
		}
		free, numbers := layout.UsableOffset, map[uint32]bool{}
		for _, p := range usedPartitions(planned) {
			if p.Offset < free || p.Offset%alignment != 0 || p.Length <= 0 || numbers[p.Number] || p.Number == 0 {
				t.Fatalf("partition %+v begins before %d, is not aligned, or has a taken number", p, free)
			}
			free, numbers[p.Number] = p.Offset+p.Length, true
		}
		if free > layout.UsableOffset+layout.UsableLength && len(layout.Partitions) == 0 {
			t.Fatal("a partition ends behind the usable space")
		}
		if data.Type != win32.PartitionBasicData || data.Attributes != win32.GPTNoDriveLetter || data.Length < leastData || !data.Rewrite {
			t.Fatalf("%+v", data)
		}
		if gap := largestGap(planned); gap.length > 2*reservedLength+alignment && gap.length > data.Length {
			t.Fatalf("the largest free piece, %d bytes, was not taken", gap.length)
		}
		if err := sameEntries(planned, planned); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPlanPartitions_ofADiskOfTenGibibytes(t *testing.T) {
	planned, data, err := planPartitions(gpt(10*gibi), win32.NewGUID)
	mustDo(t, err)
	if len(planned.Partitions) != 2 || planned.Partitions[0].Type != win32.PartitionReserved ||
		planned.Partitions[0].Offset != mebi || planned.Partitions[0].Length != 16*mebi {
		t.Errorf("%+v", planned.Partitions)
	}
	if data.Offset != 17*mebi || data.Offset+data.Length != 10*gibi-mebi {
		t.Errorf("%d bytes from %d", data.Length, data.Offset)
	}
}

func TestSameEntries_findsEachDifference(t *testing.T) {
	written := gpt(gibi, reserved(mebi), data(2, 17*mebi, 100*mebi))
	for name, change := range map[string]func(*win32.DriveLayout){
		"another disk":    func(l *win32.DriveLayout) { l.DiskID[0]++ },
		"another style":   func(l *win32.DriveLayout) { l.Style = win32.StyleMBR },
		"nothing written": func(l *win32.DriveLayout) { l.Partitions = l.Partitions[:1] },
		"another length":  func(l *win32.DriveLayout) { l.Partitions[1].Length-- },
		"another offset":  func(l *win32.DriveLayout) { l.Partitions[1].Offset++ },
		"another type":    func(l *win32.DriveLayout) { l.Partitions[1].Type[0]++ },
	} {
		read := gpt(gibi, reserved(mebi), data(2, 17*mebi, 100*mebi))
		change(&read)
		if sameEntries(written, read) == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}
