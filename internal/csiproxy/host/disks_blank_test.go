package host

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/sample"
)

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
	for start, text := range s.at {
		for i := range len(text) {
			if at := start + int64(i) - offset; at >= 0 && at < int64(len(p)) {
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
	t.Parallel()
	for _, size := range []int64{
		512, 4096, mebi, mebi + 64*kibi, 2 * mebi, 3*mebi + 512, 17 * mebi, 64*mebi + 4*kibi, 200 * mebi, 300 * gibi,
	} {
		blank, err := readContent(t.Context(), sparse{size: size}, stretch{0, size}, 512)
		mustDo(t, err)
		if _, used := blank.used(); used || blank.String() != "nothing" {
			t.Errorf("%d zeros are %v", size, blank)
		}
		ranges := signatureRanges(size)
		for _, offset := range sample.Offsets(size) {
			ranges = append(ranges, stretch{offset, sample.Page})
		}
		for _, within := range ranges {
			for _, fail := range []int64{within.offset, within.offset + within.length - 1} {
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

// All data in one of the ranges is found.
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
		inRange := false
		for _, within := range signatureRanges(size) {
			for i, b := range written {
				at := offset + int64(i)
				inRange = inRange || b != 0 && at >= within.offset && at < within.offset+within.length
			}
		}
		if inRange && !used {
			t.Fatalf("%q at %d of %d is not seen", written, offset, size)
		}
		if used == (c.String() == "nothing") || !used && c.isHalfMadeNTFS() || bytes.Equal(written, nil) && used {
			t.Fatalf("%v, used %v", c, used)
		}
	})
}
