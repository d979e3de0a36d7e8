package convert_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	diskv1 "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1"
	diskv1beta2 "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1beta2"
)

// A disk's number as text has 32 bits or is rejected: it is never truncated.
func FuzzMessage_neverTruncatesANumber(f *testing.F) {
	for _, text := range []string{
		"0", "7", "007", "4294967295", "4294967296", "18446744073709551616", "-0", "+1", "1e3", "0x1", "1_0", "", " 1", "٣",
	} {
		f.Add(text)
	}
	names := convert.Names{"diskID": "disk_number"}
	f.Fuzz(func(t *testing.T, text string) {
		var byNumber diskv1.PartitionDiskRequest
		err := convert.Message(&diskv1beta2.PartitionDiskRequest{DiskID: text}, &byNumber, names)
		number := byNumber.GetDiskNumber()
		if err != nil {
			if !strings.Contains(err.Error(), "diskID") || number != 0 {
				t.Errorf("%q: disk %d, %v", text, number, err)
			}
			return
		}
		if strings.Trim(text, "0123456789") != "" {
			t.Errorf("%q was taken for disk %d", text, number)
		}
		if exact, _ := new(big.Int).SetString(text, 10); !exact.IsUint64() || exact.Uint64() != uint64(number) {
			t.Errorf("%q became disk %d", text, number)
		}
		var byText diskv1beta2.PartitionDiskRequest
		var again diskv1.PartitionDiskRequest
		err = errors.Join(convert.Message(&byNumber, &byText, names.Inverse()), convert.Message(&byText, &again, names))
		if err != nil || again.GetDiskNumber() != number {
			t.Errorf("disk %d became %d, %v", number, again.GetDiskNumber(), err)
		}
	})
}
