package sample

import (
	"slices"
	"testing"
)

func TestOffsets_areEvenAndInside(t *testing.T) {
	for _, c := range []struct{ size, spacing, most int64 }{
		{0, mebi, 0},
		{512, mebi, 0},
		{64 * mebi, mebi, 300},
		{gibi, mebi, 1200},
		{10*gibi + 3*512, 10*mebi + Page, 1400},
		{100 * gibi, 100 * mebi, 1400},
		{4 << 40, gibi, 4096 + 500},
		{64 << 40, gibi, 65536 + 500},
	} {
		found := Offsets(c.size)
		if int64(len(found)) > c.most || !slices.IsSorted(found) {
			t.Errorf("%d bytes: %d offsets; want at most %d, ascending", c.size, len(found), c.most)
		}
		before := int64(0)
		for _, offset := range found {
			if offset < 0 || offset%512 != 0 || offset+Page > c.size || offset-before > c.spacing {
				t.Fatalf("%d bytes: offset %d after %d; want whole sectors of the device, %d apart at most",
					c.size, offset, before, c.spacing)
			}
			before = offset
		}
		if c.size-before > c.spacing+Page {
			t.Errorf("%d bytes: the last offset is %d", c.size, before)
		}
	}
}

func TestOffsets_haveTheBackupsOfTheCommonFilesystems(t *testing.T) {
	for name, c := range map[string]struct{ size, offset int64 }{
		"ext4, group 1":               {10 * gibi, 128 * mebi},
		"ext4 of 1 KiB, group 1":      {gibi, 8 * mebi},
		"ext4, group 49":              {10 * gibi, 49 * 128 * mebi},
		"xfs of 4 groups, the second": {10 * gibi, 10 * gibi / 4},
		"ntfs, the middle":            {10 * gibi, 5 * gibi},
	} {
		if !slices.Contains(Offsets(c.size), c.offset) {
			t.Errorf("%s: no offset at %d of %d", name, c.offset, c.size)
		}
	}
}
