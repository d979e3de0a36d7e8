package win32

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDiskNumbers_areThoseOfDisksAlone(t *testing.T) {
	names := []string{
		"C:", "PhysicalDrive", "PhysicalDrive7", "physicaldrive128", "PhysicalDriveX", "PhysicalDrive-1", "PhysicalDrive1 ",
		"HarddiskVolume3", "PhysicalDrive4294967295", "PhysicalDrive4294967296", "XPhysicalDrive2", "PhysicalDrive0", "",
	}
	if diff := cmp.Diff([]uint32{7, 128, 0}, DiskNumbers(names)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDiskNumbers_areThoseThatNamesWereMadeOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint32Range(0, math.MaxUint32-1).Draw(t, "number")
		name := DiskName(number)[len(`\\.\`):]
		if diff := cmp.Diff([]uint32{number}, DiskNumbers([]string{"C:", name})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	})
}
