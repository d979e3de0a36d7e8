package guard

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const mib = 1 << 20

var sizes = backend.Traits{MinimumSize: 16 * mib, MaximumSize: 1 << 40, DefaultSize: 1 << 30, AllocationUnit: mib}

func TestResolveSize(t *testing.T) {
	for name, c := range map[string]struct {
		give   backend.SizeRange
		source int64
		want   int64
		err    error
	}{
		"nothing said":                  {backend.SizeRange{}, 0, 1 << 30, nil},
		"below the minimum":             {backend.SizeRange{Required: 1}, 0, 16 * mib, nil},
		"rounded up":                    {backend.SizeRange{Required: 20*mib + 1}, 0, 21 * mib, nil},
		"exact":                         {backend.SizeRange{Required: 20 * mib, Limit: 20 * mib}, 0, 20 * mib, nil},
		"limit alone, below default":    {backend.SizeRange{Limit: 20*mib + 5}, 0, 20 * mib, nil},
		"limit alone, above default":    {backend.SizeRange{Limit: 1 << 33}, 0, 1 << 30, nil},
		"limit below the minimum":       {backend.SizeRange{Limit: mib}, 0, 0, backend.ErrOutOfRange},
		"no step inside the range":      {backend.SizeRange{Required: 20*mib + 1, Limit: 20*mib + 2}, 0, 0, backend.ErrOutOfRange},
		"above the maximum":             {backend.SizeRange{Required: 1<<40 + 1}, 0, 0, backend.ErrOutOfRange},
		"overflow":                      {backend.SizeRange{Required: math.MaxInt64}, 0, 0, backend.ErrOutOfRange},
		"negative":                      {backend.SizeRange{Required: -1}, 0, 0, backend.ErrInvalid},
		"limit below required":          {backend.SizeRange{Required: 2 * mib, Limit: mib}, 0, 0, backend.ErrInvalid},
		"source's size":                 {backend.SizeRange{}, 64 * mib, 64 * mib, nil},
		"larger than the source":        {backend.SizeRange{Required: 65 * mib}, 64 * mib, 65 * mib, nil},
		"smaller than the source":       {backend.SizeRange{Required: 63 * mib}, 64 * mib, 0, backend.ErrOutOfRange},
		"limited below the source":      {backend.SizeRange{Limit: 63 * mib}, 64 * mib, 0, backend.ErrOutOfRange},
		"source of a size without step": {backend.SizeRange{}, 64*mib + 1, 65 * mib, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolveSize(c.give, c.source, sizes)
			if !errors.Is(err, c.err) || (err == nil && got != c.want) {
				t.Fatalf("got %d, %v; want %d, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestLeastFor_raisesASmallSizeToTheLeastOfItsFilesystem(t *testing.T) {
	traits := sizes
	traits.Filesystems, traits.FilesystemMinimum = []string{"small", "large"}, map[string]int64{"large": 300 * mib}
	for name, c := range map[string]struct {
		uses  []backend.Capability
		give  backend.SizeRange
		want  int64
		error error
	}{
		"raw block":        {[]backend.Capability{{Block: true}}, backend.SizeRange{Required: 1}, 16 * mib, nil},
		"the default":      {[]backend.Capability{{}}, backend.SizeRange{Required: 1}, 16 * mib, nil},
		"one that is said": {[]backend.Capability{{FSType: "large"}}, backend.SizeRange{Required: 1}, 300 * mib, nil},
		"one of two uses":  {[]backend.Capability{{}, {FSType: "large"}}, backend.SizeRange{Required: 1}, 300 * mib, nil},
		"enough":           {[]backend.Capability{{FSType: "large"}}, backend.SizeRange{Required: 301 * mib}, 301 * mib, nil},
		"limited":          {[]backend.Capability{{FSType: "large"}}, backend.SizeRange{Required: 1, Limit: 299 * mib}, 0, backend.ErrOutOfRange},
	} {
		got, err := resolveSize(c.give, 0, leastFor(c.uses, traits))
		if !errors.Is(err, c.error) || (err == nil && got != c.want) {
			t.Errorf("%s: got %d, %v; want %d, %v", name, got, err, c.want, c.error)
		}
	}
}

func TestResolveSize_resultSatisfiesTheRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := backend.SizeRange{
			Required: rapid.Int64Min(0).Draw(t, "required"),
			Limit:    rapid.Int64Min(0).Draw(t, "limit"),
		}
		source := rapid.Int64Range(0, 1<<41).Draw(t, "source")
		size, err := resolveSize(r, source, sizes)
		if err != nil {
			return
		}
		if !fits(size, r) || size < source || size%mib != 0 || size < sizes.MinimumSize || size > sizes.MaximumSize {
			t.Fatalf("%+v of source %d resolved to %d", r, source, size)
		}
	})
}
