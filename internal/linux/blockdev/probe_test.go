package blockdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
	"github.com/holdfast-csi/holdfast/internal/sample"
)

const testSize = 16 * mebi

// image is a device of zeros with the given bytes at the given offsets; a
// negative offset counts from the end.
func image(size int64, parts map[int64]string) []byte {
	data := make([]byte, size)
	for offset, part := range parts {
		if offset < 0 {
			offset += size
		}
		copy(data[offset:], part)
	}
	return data
}

func probeBytes(t *testing.T, data []byte) Content {
	t.Helper()
	content, err := Probe(t.Context(), bytes.NewReader(data), int64(len(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestProbe_zerosAreBlank(t *testing.T) {
	for _, size := range []int64{512, 4096, 64 * kibi, mebi, 5 * mebi, 70 * mebi} {
		if content := probeBytes(t, make([]byte, size)); content.Kind != Blank {
			t.Errorf("%d bytes: %+v", size, content)
		}
	}
}

func TestProbe_deviceWithoutSizeIsNotBlank(t *testing.T) {
	if content := probeBytes(t, nil); content.Kind == Blank {
		t.Fatalf("%+v", content)
	}
}

func TestProbe_oneByteAnywhereASignatureCouldBeIsNotBlank(t *testing.T) {
	size := int64(80 * mebi)
	data := make([]byte, size)
	offsets := []int64{0, 511, 1023, 1080, 4095, 64 * kibi, mebi, 2 * mebi, 4*mebi + 4095, 64 * mebi, 64*mebi + 4095,
		size - mebi, size - 64*kibi, size - 4096, size - 512, size - 1}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		offsets = append(offsets, random.Int64N(farHead), size-1-random.Int64N(farTail))
	}
	for _, offset := range offsets {
		data[offset] = 1
		content := probeBytes(t, data)
		data[offset] = 0
		if content.Kind != Unrecognized || !strings.HasSuffix(content.Detail, fmt.Sprint(offset)) {
			t.Errorf("a byte at %d: %+v", offset, content)
		}
	}
}

func TestProbe_foreignSignatures(t *testing.T) {
	md := "\xfc\x4e\x2b\xa9\x01\x00\x00\x00"
	md10 := make([]byte, 152)
	copy(md10, md)
	little.PutUint64(md10[144:], (testSize/512-16)&^7)
	for name, parts := range map[string]map[int64]string{
		"linux_raid_member":                      {4096: md},
		"linux_raid_member at start":             {0: md},
		"linux_raid_member 1.0 at end":           {(testSize/512 - 16) &^ 7 * 512: string(md10)},
		"linux_raid_member 0.90":                 {-64 * kibi: "\xfc\x4e\x2b\xa9\x00\x00\x00\x00\x5a\x00\x00\x00"},
		"linux_raid_member 0.90 big endian":      {-64 * kibi: "\xa9\x2b\x4e\xfc\x00\x00\x00\x00\x00\x00\x00\x5a"},
		"isw_raid_member":                        {-1024: "Intel Raid ISM Cfg Sig. 1.3.00"},
		"ddf_raid_member":                        {-512: "\xde\x11\xde\x11" + strings.Repeat("x", 28) + "01.02.00"},
		"LVM2_member":                            {512: "LABELONE" + strings.Repeat("x", 16) + "LVM2 001"},
		"crypto_LUKS":                            {0: "LUKS\xba\xbe\x00\x02"},
		"crypto_LUKS whose first header is gone": {4 * mebi: "SKUL\xba\xbe\x00\x02"},
		"bcache":                                 {4096 + 24: "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"},
		"gpt":                                    {512: "EFI PART"},
		"gpt of 4K":                              {4096: "EFI PART"},
		"gpt backup":                             {-512: "EFI PART"},
		"dos":                                    {446: "\x80\x00\x01\x00\x83", 510: "\x55\xaa"},
		"dos without partitions":                 {510: "\x55\xaa"},
		"zfs_member":                             {128 * kibi: "\x0c\xb1\xba\x00\x00\x00\x00\x00"},
		"zfs_member in last label":               {-128*kibi + 5*kibi: "\x00\x00\x00\x00\x00\xba\xb1\x0c"},
		"squashfs":                               {0: "hsqs"},
		"iso9660":                                {32*kibi + 1: "CD001"},
		"f2fs":                                   {1024: "\x10\x20\xf5\xf2"},
		"BitLocker":                              {3: "-FVE-FS-", 510: "\x55\xaa"},
		"swap of a large page":                   {65536 - 10: "SWAPSPACE2"},
	} {
		t.Run(name, func(t *testing.T) {
			content := probeBytes(t, image(testSize, parts))
			want, _, _ := strings.Cut(name, " ")
			if content.Kind != Foreign || content.Type != want || content.Detail == "" {
				t.Errorf("%+v", content)
			}
		})
	}
}

// failing is a device on which one range cannot be read: like the kernel, a read
// that reaches it gives what lies before it, with an error.
type failing struct {
	io.ReaderAt
	from, to int64
}

var errSector = errors.New("unreadable sector")

func (f failing) ReadAt(p []byte, offset int64) (int, error) {
	if offset < f.to && offset+int64(len(p)) > f.from {
		n, _ := f.ReaderAt.ReadAt(p[:max(0, f.from-offset)], offset)
		return n, errSector
	}
	return f.ReaderAt.ReadAt(p, offset)
}

// zeros is a device of any size that has no data.
type zeros int64

func (z zeros) ReadAt(p []byte, offset int64) (int, error) {
	clear(p)
	if offset+int64(len(p)) > int64(z) {
		return max(0, int(int64(z)-offset)), io.EOF
	}
	return len(p), nil
}

// reads records the sectors that are read of a device of zeros.
type reads struct {
	zeros
	mu      sync.Mutex
	sectors map[int64]bool // by their offset
}

func (r *reads) ReadAt(p []byte, offset int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := offset &^ 511; at < offset+int64(len(p)); at += 512 {
		r.sectors[at] = true
	}
	return r.zeros.ReadAt(p, offset)
}

// Every sector that Probe reads of a device of zeros is unreadable once, alone:
// that device must not be taken for a blank one. Of the largest device it is one
// sector of every page.
func TestProbe_everySectorThatIsReadCounts(t *testing.T) {
	all := func(size int64) Written { return written([2]int64{0, size}) }
	none := func(int64) Written { return nil }
	for _, c := range []struct {
		name    string
		size    int64
		every   int // sectors between two that are tried
		least   int // sectors that are read
		written func(size int64) Written
	}{
		{"sampled", 12*mebi + 3*512, 1, 4300 + 10*8, none},
		{"sampled, a large device", 300*gibi + 3*512, 7, 4300 + 1024*8, none},
		{"proven", 9*mebi/4 + 3*512, 1, 9*512 + 3, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			recorded := &reads{zeros: zeros(c.size), sectors: map[int64]bool{}}
			if content, err := Probe(t.Context(), recorded, c.size, c.written(c.size)); err != nil || content.Kind != Blank {
				t.Fatalf("%+v, %v", content, err)
			}
			sectors := slices.Sorted(maps.Keys(recorded.sectors))
			if len(sectors) < c.least {
				t.Errorf("%d sectors were read; want %d or more", len(sectors), c.least)
			}
			for i := 0; i < len(sectors); i += c.every {
				at := sectors[i]
				content, err := Probe(t.Context(), failing{zeros(c.size), at, at + 512}, c.size, c.written(c.size))
				if !errors.Is(err, errSector) || content.Kind == Blank {
					t.Errorf("sector at %d unreadable: %+v, %v", at, content, err)
				}
			}
		})
	}
}

// run is a device of zeros but for one run of data.
type run struct {
	zeros
	from, to int64
}

func (r run) ReadAt(p []byte, offset int64) (int, error) {
	n, err := r.zeros.ReadAt(p, offset)
	for i := max(0, r.from-offset); i < min(int64(n), r.to-offset); i++ {
		p[i] = 0xa5
	}
	return n, err
}

// A run of data as long as a thousandth of the device, and no shorter than 1 MiB,
// is found at any offset; on the largest devices one of 1 GiB.
func TestProbe_longRunsOfDataAreFoundWithoutAProof(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for size, longest := range map[int64]int64{
		64 * mebi:             mebi,
		gibi:                  mebi,
		10*gibi + 3*512:       10*mebi + sample.Page,
		100 * gibi:            100 * mebi,
		4 << 40:               gibi,
		16<<40 + 5*mebi + 512: gibi,
	} {
		for range 8 {
			from := random.Int64N(size - longest - sample.Page)
			content, err := Probe(t.Context(), run{zeros(size), from, from + longest + sample.Page}, size, nil)
			if err != nil || content.Kind == Blank {
				t.Errorf("%d bytes of data at %d of %d: %+v, %v", longest+sample.Page, from, size, content, err)
			}
		}
	}
}

// slow is a device whose reads take a second.
type slow struct{ io.ReaderAt }

func (s slow) ReadAt(p []byte, offset int64) (int, error) {
	time.Sleep(time.Second)
	return s.ReaderAt.ReadAt(p, offset)
}

// In virtual time: on a busy machine, the reader that got the error may be the last to run.
func TestProbe_readsNoMoreAfterAnUnreadableSector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100 * gibi
		recorded := &reads{zeros: zeros(size), sectors: map[int64]bool{}}
		bad := int64(200 * mebi)
		if _, err := Probe(t.Context(), failing{slow{recorded}, bad, bad + 512}, size, nil); !errors.Is(err, errSector) {
			t.Fatal(err)
		}
		if recorded.sectors[size-100*mebi] {
			t.Error("the last page of the sample was read after an error in one of the first")
		}
	})
}

// written lists the extents of a test.
func written(ranges ...[2]int64) Written {
	return func(visit func(offset, length int64) error) error {
		for _, r := range ranges {
			if err := visit(r[0], r[1]); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestProbe_allThatWasWrittenIsRead(t *testing.T) {
	const size, at = 80 * mebi, 33*mebi + 777
	data := image(size, map[int64]string{at: "x"})
	probed := func(w Written) (Content, error) { return Probe(t.Context(), bytes.NewReader(data), size, w) }
	content, err := probed(written([2]int64{0, 4096}, [2]int64{32 * mebi, 2 * mebi}))
	if err != nil || content.Kind != Unrecognized || !strings.HasSuffix(content.Detail, fmt.Sprint(at)) {
		t.Errorf("%+v, %v; want data at %d", content, err, at)
	}
	if content, err = probed(written([2]int64{0, 4096})); err != nil || content.Kind != Blank {
		t.Errorf("%+v, %v; want blank by the written extents", content, err)
	}
	failed := errors.New("no list")
	if content, err = probed(func(func(int64, int64) error) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%+v, %v; want the error of the list", content, err)
	}
	unknown := func(func(int64, int64) error) error { return backend.ErrUnsupported }
	if content, err = Probe(t.Context(), bytes.NewReader(image(size, map[int64]string{32 * mebi: "x"})), size, unknown); err != nil || content.Kind == Blank {
		t.Errorf("%+v, %v; want the page at 32 MiB to be read where no list is", content, err)
	}
	if content, err = Probe(t.Context(), failing{zeros(size), 40 * mebi, 40*mebi + 512}, size, written([2]int64{0, size})); !errors.Is(err, errSector) {
		t.Errorf("%+v, %v; want an unreadable sector in the written extents", content, err)
	}
}

// A volume that was never written is read only where the signatures are that decide about
// a device with a filesystem, as each volume is before its first use.
func TestProbe_readsNothingElseOfADeviceThatWasNeverWritten(t *testing.T) {
	const size = gibi
	recorded := &reads{zeros: zeros(size), sectors: map[int64]bool{}}
	content, err := Probe(t.Context(), recorded, size, written())
	if err != nil || content.Kind != Blank {
		t.Fatalf("%+v, %v", content, err)
	}
	if count, most := len(recorded.sectors), (nearHead+nearTail)/512; count > most {
		t.Errorf("%d sectors were read; want at most %d", count, most)
	}
}

// Data that the list of written extents leads to is named by a signature elsewhere.
func TestProbe_namesDataThatTheWrittenExtentsShow(t *testing.T) {
	data := image(testSize, map[int64]string{3 * mebi: "x", 4 * mebi: "SKUL\xba\xbe\x00\x02"})
	content, err := Probe(t.Context(), bytes.NewReader(data), testSize, written([2]int64{3 * mebi, 2 * mebi}))
	if err != nil || content.Kind != Foreign || content.Type != "crypto_LUKS" {
		t.Errorf("%+v, %v; want crypto_LUKS", content, err)
	}
}

func TestProbe_shortDeviceIsAnError(t *testing.T) {
	if content, err := Probe(t.Context(), bytes.NewReader(make([]byte, mebi)), 2*mebi, nil); err == nil {
		t.Fatalf("%+v", content)
	}
}

func TestProbe_endsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Probe(ctx, zeros(mebi), mebi, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// mend writes the checksums of the superblocks that a device may have, so that a change
// reaches what is checked behind them.
func mend(data []byte) {
	ext := data[1024:2048]
	little.PutUint32(ext[0x3fc:], ^crc32c(ext[:0x3fc]))
	btrfs := data[btrfsSuperOffset:][:btrfsSuperSize]
	if isBtrfs(btrfs) {
		little.PutUint32(btrfs, crc32c(btrfs[32:]))
	}
	xfs := data[:512]
	if string(xfs[:4]) == "XFSB" {
		little.PutUint32(xfs[xfsCRCOffset:], crc32c(xfs[:xfsCRCOffset], make([]byte, 4), xfs[xfsCRCOffset+4:]))
	}
}

// FuzzProbe writes any bytes anywhere near the ends of a device of zeros, with right
// checksums or not. A device is blank only if it is all zeros, and a filesystem fits on
// it.
func FuzzProbe(f *testing.F) {
	f.Add([]byte{}, int64(0), false, false)
	for _, table := range [][]signature{containers, hidden, others} {
		for _, s := range table {
			f.Add([]byte(s.magic), max(s.offset, -s.offset-1), s.offset < 0, false)
		}
	}
	f.Add([]byte("XFSB\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x40"+strings.Repeat("\x00", 84)+"\x00\x05\x02\x00"), int64(0), false, true)
	f.Add([]byte("\x10\x00\x00\x00\x40\x00\x00\x00"+strings.Repeat("\x01\x00\x00\x00", 12)+"\x53\xef\x01\x00"), int64(1024), false, true)
	f.Add([]byte("\x53\xef\x01\x00"), int64(1080), false, false)
	f.Add([]byte("_BHRfS_M"+strings.Repeat("\x01\x00\x00\x00\x00\x00\x00\x00", 20)), int64(64*kibi+64), false, true)
	f.Add([]byte("_BHRfS_M"), int64(64*kibi+64), true, false)
	f.Fuzz(func(t *testing.T, part []byte, offset int64, fromEnd, sound bool) {
		data := make([]byte, 512*kibi)
		if offset < 0 || offset >= int64(len(data)) {
			return
		}
		if fromEnd {
			offset = int64(len(data)) - 1 - offset
		}
		copy(data[offset:], part)
		if sound && len(part) > 0 {
			mend(data)
		}
		var content Content
		fuzztest.Cost{}.Within(t, len(data), func() { content = probeBytes(t, data) })
		holdsZeros := firstNonzero(data) < 0
		if (content.Kind == Blank) != holdsZeros {
			t.Fatalf("zeros = %t, but %+v", holdsZeros, content)
		}
		if content.Kind == Filesystem && (content.Size <= 0 || content.Size > int64(len(data))) {
			t.Fatalf("a filesystem of %d bytes on %d", content.Size, len(data))
		}
	})
}
