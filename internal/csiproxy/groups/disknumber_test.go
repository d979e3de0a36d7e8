package groups

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// D-16: a disk's text is a number of 32 bits or refused, never cut.
func FuzzDiskNumber(f *testing.F) {
	for _, text := range []string{"0", "7", "007", "4294967295", "4294967296", "18446744073709551616", "-0", "+1", "1e3", "0x1", "1_0", "", " 1", "٣"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		number, err := diskNumber("diskID", text)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "diskID") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if strings.Trim(text, "0123456789") != "" {
			t.Errorf("%q was taken for disk %d", text, number)
		}
		if exact, _ := new(big.Int).SetString(text, 10); !exact.IsUint64() || exact.Uint64() != uint64(number) {
			t.Errorf("%q became disk %d", text, number)
		}
		if again, err := diskNumber("", diskText(number)); err != nil || again != number {
			t.Errorf("disk %d became %d, %v", number, again, err)
		}
	})
}
