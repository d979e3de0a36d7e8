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

func TestResolveSize_resultIsAlwaysWhatWasAsked(t *testing.T) {
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
