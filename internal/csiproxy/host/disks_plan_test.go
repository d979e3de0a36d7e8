package host

import (
	"bytes"
	"errors"
	"io"
	"strings"
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
		Style: win32.StyleGPT, DiskID: win32.GUID{1}, UsableOffset: 34 * 512, UsableLength: size - 67*512, MaxPartitions: 128, Partitions: partitions,
	}
}

func reserved(offset int64) win32.Partition {
	return win32.Partition{Number: 1, Offset: offset, Length: 16 * mebi, Type: win32.PartitionReserved, ID: win32.GUID{2}}
}

func data(number uint32, offset, length int64) win32.Partition {
	return win32.Partition{Number: number, Offset: offset, Length: length, Type: win32.PartitionBasicData, ID: win32.GUID{byte(number), 3}}
}

func TestUseOf_tellsWhatATableSays(t *testing.T) {
	mbr := func(kind uint8) win32.DriveLayout {
		return win32.DriveLayout{Style: win32.StyleMBR, Partitions: []win32.Partition{
			{Style: win32.StyleMBR, MBRType: kind, Offset: mebi, Length: mebi}, {Style: win32.StyleMBR}, {Style: win32.StyleMBR}, {Style: win32.StyleMBR},
		}}
	}
	linux := data(1, mebi, gibi)
	linux.Type = win32.GUID{0xaf}
	for name, test := range map[string]struct {
		layout win32.DriveLayout
		want   diskUse
	}{
		"no table":                      {win32.DriveLayout{Style: win32.StyleRaw}, unpartitioned},
		"an empty GPT":                  {gpt(gibi), initialised},
		"a GPT with empty entries":      {gpt(gibi, win32.Partition{}), initialised},
		"the reserved partition only":   {gpt(gibi, reserved(mebi)), initialised},
		"a data partition":              {gpt(gibi, reserved(mebi), data(2, 17*mebi, mebi)), partitioned},
		"somebody else's kind":          {gpt(2*gibi, linux), partitioned},
		"an MBR counts as partitioned":  {mbr(7), partitioned},
		"an MBR of Linux":               {mbr(0x83), partitioned},
		"an MBR with four empty places": {mbr(0), unusable},
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
	if len(planned.Partitions) != 2 || planned.Partitions[0].Type != win32.PartitionReserved || planned.Partitions[0].Offset != mebi || planned.Partitions[0].Length != 16*mebi {
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
		"another place":   func(l *win32.DriveLayout) { l.Partitions[1].Offset++ },
		"another type":    func(l *win32.DriveLayout) { l.Partitions[1].Type[0]++ },
	} {
		read := gpt(gibi, reserved(mebi), data(2, 17*mebi, 100*mebi))
		change(&read)
		if sameEntries(written, read) == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}

// sparse is a disk whose bytes are zero but for some.
type sparse struct {
	size int64
	at   map[int64]string
	fail int64 // reads of this byte fail
}

func (s sparse) ReadAt(p []byte, offset int64) (int, error) {
	if s.fail != 0 && offset <= s.fail && s.fail < offset+int64(len(p)) {
		return 0, win32.ErrorCRC
	}
	clear(p)
	for place, text := range s.at {
		for i := range len(text) {
			if at := place + int64(i) - offset; at >= 0 && at < int64(len(p)) {
				p[at] = text[i]
			}
		}
	}
	n := int(max(0, min(int64(len(p)), s.size-offset)))
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func TestReadContent_findsWhatIsThere(t *testing.T) {
	const size = 300 * gibi
	for name, test := range map[string]struct {
		offset int64
		bytes  string
		want   string
	}{
		"a GPT":                     {512, "EFI PART", "a GPT"},
		"the copy of a GPT":         {size - 512, "EFI PART", "the copy of a GPT"},
		"a boot sector":             {510, "\x55\xaa", "a boot sector or an MBR"},
		"NTFS":                      {3, "NTFS    ", "NTFS"},
		"NTFS without its table":    {mebi + 3, "NTFS    ", "NTFS"},
		"BitLocker":                 {3, "-FVE-FS-", "BitLocker"},
		"ext4":                      {1080, "\x53\xef", "ext2, ext3 or ext4"},
		"XFS":                       {0, "XFSB", "XFS"},
		"btrfs":                     {65600, "_BHRfS_M", "btrfs"},
		"a mirror of btrfs":         {256*gibi + 64, "_BHRfS_M", "data of unknown kind"},
		"LUKS":                      {0, "LUKS\xba\xbe", "LUKS"},
		"LVM":                       {512, "LABELONE", "LVM"},
		"one byte in the head":      {700_000, "\x01", "data of unknown kind from byte 700000"},
		"one byte in the tail":      {size - 1, "\x80", "data of unknown kind"},
		"a lost data partition":     {17*mebi + 510, "\x55\xaa", "data of unknown kind"},
		"the last byte of the head": {mebi, "x", "data of unknown kind"},
	} {
		c, err := readContent(t.Context(), sparse{size: size, at: map[int64]string{test.offset: test.bytes}}, stretch{0, size}, 512)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, used := c.used(); !used || !strings.HasPrefix(c.String(), test.want) {
			t.Errorf("%s: %v", name, c)
		}
	}
}

func TestReadContent_neverTakesWhatItCannotReadForBlank(t *testing.T) {
	for _, size := range []int64{512, 4096, mebi, mebi + 64*kibi, 2 * mebi, 3*mebi + 512, 17 * mebi, 64*mebi + 4*kibi, 200 * mebi, 300 * gibi} {
		blank, err := readContent(t.Context(), sparse{size: size}, stretch{0, size}, 512)
		mustDo(t, err)
		if _, used := blank.used(); used || blank.String() != "nothing" {
			t.Errorf("%d zeros are %v", size, blank)
		}
		for _, place := range signaturePlaces(size) {
			for _, fail := range []int64{place.offset, place.offset + place.length - 1} {
				if _, err := readContent(t.Context(), sparse{size: size, fail: max(fail, 1)}, stretch{0, size}, 512); !errors.Is(err, backend.ErrUnavailable) {
					t.Errorf("a disk of %d whose byte %d cannot be read: %v", size, fail, err)
				}
			}
		}
		if _, err := readContent(t.Context(), sparse{size: size - 1}, stretch{0, size}, 512); err == nil {
			t.Errorf("a disk that ends before its size of %d", size)
		}
	}
	for _, bad := range []stretch{{0, 0}, {0, 100}, {100, mebi}, {0, -5}} {
		if _, err := readContent(t.Context(), sparse{size: gibi}, bad, 512); !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Sectors of 4 KiB, and a GPT's usable space, which begins at no such boundary.
func TestReadContent_readsWholeSectors(t *testing.T) {
	for _, within := range []stretch{{0, 10 * mebi}, {34 * 512, 10 * mebi}, {24576, 10*mebi + 4096}} {
		for _, sector := range []int64{512, 4096} {
			if within.offset%sector != 0 {
				continue
			}
			reader := aligned{t, sector, sparse{size: gibi, at: map[int64]string{0: "EFI PART"}}}
			c, err := readContent(t.Context(), reader, within, sector)
			mustDo(t, err)
			if _, used := c.used(); used != (within.offset == 0) {
				t.Errorf("%v: %v", within, c)
			}
		}
	}
}

type aligned struct {
	t      *testing.T
	sector int64
	sparse
}

func (a aligned) ReadAt(p []byte, offset int64) (int, error) {
	if offset%a.sector != 0 || int64(len(p))%a.sector != 0 {
		a.t.Errorf("%d bytes from %d", len(p), offset)
	}
	return a.sparse.ReadAt(p, offset)
}

func TestHalfMadeNTFS_isTheRestOfAFormatAndNothingElse(t *testing.T) {
	const size = 10 * gibi
	for name, test := range map[string]struct {
		at   map[int64]string
		want bool
	}{
		"a boot sector":                   {map[int64]string{3: "NTFS    "}, true},
		"its copy only":                   {map[int64]string{size - 509: "NTFS    "}, true},
		"records of the file table":       {map[int64]string{8192: "FILE0"}, true},
		"a log":                           {map[int64]string{512 * 1024: "RSTR"}, true},
		"nothing":                         {nil, false},
		"unknown data":                    {map[int64]string{8193: "FILE0"}, false},
		"ext4":                            {map[int64]string{1080: "\x53\xef"}, false},
		"ext4 over the rest of a format":  {map[int64]string{1080: "\x53\xef", size - 509: "NTFS    ", 8192: "FILE0"}, false},
		"LUKS over the rest of a format":  {map[int64]string{0: "LUKS\xba\xbe", size - 509: "NTFS    "}, false},
		"BitLocker over the rest of it":   {map[int64]string{3: "-FVE-FS-", size - 509: "NTFS    "}, false},
		"a partition table in the volume": {map[int64]string{512: "EFI PART", 8192: "FILE0"}, false},
	} {
		c, err := readContent(t.Context(), sparse{size: size, at: test.at}, stretch{0, size}, 512)
		mustDo(t, err)
		if got := c.isHalfMadeNTFS(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Whatever is written to one of the places, it is seen.
func FuzzReadContent(f *testing.F) {
	f.Add(int64(100*mebi), int64(3), []byte("NTFS    "))
	f.Add(int64(gibi), int64(-1), []byte{1})
	f.Fuzz(func(t *testing.T, size, offset int64, written []byte) {
		size = max(512, min(size, 1<<40)) / 512 * 512
		if offset < 0 {
			offset += size
		}
		c, err := readContent(t.Context(), sparse{size: size, at: map[int64]string{offset: string(written)}}, stretch{0, size}, 512)
		if err != nil {
			t.Fatal(err)
		}
		_, used := c.used()
		inPlace := false
		for _, place := range signaturePlaces(size) {
			for i, b := range written {
				at := offset + int64(i)
				inPlace = inPlace || b != 0 && at >= place.offset && at < place.offset+place.length
			}
		}
		if inPlace && !used {
			t.Fatalf("%q at %d of %d is not seen", written, offset, size)
		}
		if used == (c.String() == "nothing") || !used && c.isHalfMadeNTFS() || bytes.Equal(written, nil) && used {
			t.Fatalf("%v, used %v", c, used)
		}
	})
}

// D-11: growth by any amount of at least a cluster.
func TestGrowth_plans(t *testing.T) {
	const size, cluster = 20 * gibi, 4096
	whole := int64(size - mebi - 17*mebi)
	base := func(length int64) growth {
		return growth{layout: gpt(size, reserved(mebi), data(2, 17*mebi, length)), offset: 17 * mebi, disk: size, sector: 512, cluster: cluster}
	}
	end := usableEnd(base(gibi).layout, size, 512) - 17*mebi
	for name, test := range map[string]struct {
		change func(*growth)
		length int64
		want   int64
		err    error
	}{
		"all there is":                       {func(*growth) {}, 10 * gibi, (end - 10*gibi) / cluster * cluster, nil},
		"all, and there is none":             {func(*growth) {}, end, 0, nil},
		"less than a cluster is left":        {func(*growth) {}, end - cluster + 1, 0, nil},
		"to a size":                          {func(g *growth) { g.wanted = 12 * gibi }, 10 * gibi, 2 * gibi, nil},
		"by one mebibyte":                    {func(g *growth) { g.wanted = 10*gibi + mebi }, 10 * gibi, mebi, nil},
		"by one cluster":                     {func(g *growth) { g.wanted = 10*gibi + cluster }, 10 * gibi, cluster, nil},
		"by less than a cluster":             {func(g *growth) { g.wanted = 10*gibi + cluster - 1 }, 10 * gibi, 0, nil},
		"to the size it has":                 {func(g *growth) { g.wanted = 10 * gibi }, 10 * gibi, 0, nil},
		"to less":                            {func(g *growth) { g.wanted = 5 * gibi }, 10 * gibi, 0, nil},
		"to the disk's size: all there is":   {func(g *growth) { g.wanted = size }, 10 * gibi, (end - 10*gibi) / cluster * cluster, nil},
		"beyond the disk":                    {func(g *growth) { g.wanted = size + 1 }, 10 * gibi, 0, backend.ErrOutOfRange},
		"a negative size":                    {func(g *growth) { g.wanted = -1 }, 10 * gibi, 0, backend.ErrInvalid},
		"no such partition":                  {func(g *growth) { g.offset++ }, 10 * gibi, 0, backend.ErrNotFound},
		"a filesystem without clusters":      {func(g *growth) { g.cluster = 0 }, 10 * gibi, 0, backend.ErrPrecondition},
		"another partition behind it":        {func(g *growth) { g.layout.Partitions = append(g.layout.Partitions, behind(whole)) }, gibi, 0, backend.ErrPrecondition},
		"another behind it, and no growth":   {func(g *growth) { g.layout.Partitions, g.wanted = append(g.layout.Partitions, behind(whole)), gibi }, gibi, 0, nil},
		"a table that is larger than a disk": {func(g *growth) { g.disk = 11 * gibi }, 10 * gibi, (gibi - 17*mebi) / cluster * cluster, nil},
	} {
		plan := base(test.length)
		test.change(&plan)
		got, err := plan.plan()
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, err, test.want, test.err)
		}
	}
}

func behind(offset int64) win32.Partition {
	p := data(3, offset, mebi)
	p.Style = win32.StyleGPT
	return p
}

func TestGrowth_neverLeavesTheDiskNorShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(100*mebi, 1<<44).Draw(t, "size") / 512 * 512
		length := rapid.Int64Range(mebi, size-30*mebi).Draw(t, "length") / 512 * 512
		g := growth{
			layout: gpt(size, reserved(mebi), data(2, 17*mebi, length)), offset: 17 * mebi, disk: size, sector: 512,
			cluster: int64(512) << rapid.IntRange(0, 12).Draw(t, "cluster"), wanted: rapid.Int64Range(0, size).Draw(t, "wanted"),
		}
		bytes, err := g.plan()
		if err != nil {
			t.Fatal(err)
		}
		after := length + bytes
		if bytes < 0 || bytes%g.cluster != 0 || bytes > 0 && (17*mebi+after > usableEnd(g.layout, size, 512) || g.wanted != 0 && after > g.wanted) {
			t.Fatalf("%d more than %d of %d, wanted %d", bytes, length, size, g.wanted)
		}
	})
}

func TestFilesystemIsBehind_leavesNTFSItsLastSector(t *testing.T) {
	const partition = 10 * gibi
	for missing, want := range map[int64]bool{0: false, 1: false, 8: false, 9: true, 2048: true, 4 << 20: true} {
		ntfs := win32.NTFSVolumeData{Sectors: partition/512 - missing, BytesPerSector: 512, BytesPerCluster: 4096}
		if got := filesystemIsBehind(ntfs, partition); got != want {
			t.Errorf("%d sectors less: %v", missing, got)
		}
	}
	if filesystemIsBehind(win32.NTFSVolumeData{}, partition) {
		t.Error("sectors of no bytes")
	}
}
