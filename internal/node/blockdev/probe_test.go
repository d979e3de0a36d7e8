package blockdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
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

// failing is a device on which one range cannot be read.
type failing struct {
	io.ReaderAt
	from, to int64
}

var errSector = errors.New("unreadable sector")

func (f failing) ReadAt(p []byte, offset int64) (int, error) {
	if offset < f.to && offset+int64(len(p)) > f.from {
		return 0, errSector
	}
	return f.ReaderAt.ReadAt(p, offset)
}

// zeros is a device of any size that holds nothing.
type zeros int64

func (z zeros) ReadAt(p []byte, offset int64) (int, error) {
	clear(p)
	if offset+int64(len(p)) > int64(z) {
		return max(0, int(int64(z)-offset)), io.EOF
	}
	return len(p), nil
}

func TestProbe_unreadableSectorIsAnErrorEverywhere(t *testing.T) {
	size := int64(300 * gibi)
	places := []int64{0, 1024, 64 * kibi, 128 * kibi, mebi, 2 * mebi, 4 * mebi, 64 * mebi, 256 * gibi,
		size - mebi, size - 128*kibi, size - 512}
	for _, place := range places {
		content, err := Probe(t.Context(), failing{zeros(size), place, place + 512}, size, nil)
		if !errors.Is(err, errSector) {
			t.Errorf("sector at %d: %+v, %v", place, content, err)
		}
	}
	if content, err := Probe(t.Context(), zeros(size), size, nil); err != nil || content.Kind != Blank {
		t.Errorf("a large device: %+v, %v", content, err)
	}
}

// reads records what is read of a device of zeros.
type reads struct {
	zeros
	mu    sync.Mutex
	begun map[int64]int // length by offset
}

func (r *reads) ReadAt(p []byte, offset int64) (int, error) {
	r.mu.Lock()
	r.begun[offset] = max(len(p), r.begun[offset])
	r.mu.Unlock()
	return r.zeros.ReadAt(p, offset)
}

// The first and last sector of everything that is read, and one between.
func TestProbe_everySectorThatIsReadCounts(t *testing.T) {
	for _, size := range []int64{64 * mebi, 10*gibi + 3*512} {
		recorded := &reads{zeros: zeros(size), begun: map[int64]int{}}
		if content, err := Probe(t.Context(), recorded, size, nil); err != nil || content.Kind != Blank {
			t.Fatalf("%+v, %v", content, err)
		}
		if len(recorded.begun) < int(size/gibi) {
			t.Errorf("%d reads of %d bytes; want one of every GiB", len(recorded.begun), size)
		}
		for offset, length := range recorded.begun {
			for _, at := range []int64{offset, offset + int64(length)/2, offset + int64(length) - 512} {
				content, err := Probe(t.Context(), failing{zeros(size), at, at + 512}, size, nil)
				if !errors.Is(err, errSector) {
					t.Errorf("sector at %d of %d unreadable: %+v, %v", at, size, content, err)
				}
			}
		}
	}
}

// written lists what a test says.
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
		t.Errorf("%+v, %v; want blank by what was written", content, err)
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
		t.Errorf("%+v, %v; want an unreadable sector in what was written", content, err)
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

func FuzzProbe(f *testing.F) {
	f.Add([]byte{}, int64(0), false)
	f.Add([]byte("XFSB"), int64(0), false)
	f.Add([]byte("\x53\xef\x01\x00"), int64(1080), false)
	f.Add([]byte("_BHRfS_M"), int64(64*kibi+64), true)
	f.Add([]byte("\xfc\x4e\x2b\xa9"), int64(4096), true)
	f.Fuzz(func(t *testing.T, part []byte, offset int64, fromEnd bool) {
		data := make([]byte, 512*kibi)
		if offset < 0 || offset >= int64(len(data)) {
			return
		}
		if fromEnd {
			offset = int64(len(data)) - 1 - offset
		}
		copy(data[offset:], part)
		content := probeBytes(t, data)
		holdsZeros := firstNonzero(data) < 0
		if (content.Kind == Blank) != holdsZeros {
			t.Fatalf("zeros = %t, but %+v", holdsZeros, content)
		}
		if content.Kind == Filesystem && (content.Size <= 0 || content.Size > int64(len(data))) {
			t.Fatalf("a filesystem of %d bytes on %d", content.Size, len(data))
		}
	})
}
