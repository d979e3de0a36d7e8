package host

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Growth by any amount of at least a cluster.
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
		"all there is":                     {func(*growth) {}, 10 * gibi, (end - 10*gibi) / cluster * cluster, nil},
		"all, and there is none":           {func(*growth) {}, end, 0, nil},
		"less than a cluster is left":      {func(*growth) {}, end - cluster + 1, 0, nil},
		"to a size":                        {func(g *growth) { g.desired = 12 * gibi }, 10 * gibi, 2 * gibi, nil},
		"by one mebibyte":                  {func(g *growth) { g.desired = 10*gibi + mebi }, 10 * gibi, mebi, nil},
		"by one cluster":                   {func(g *growth) { g.desired = 10*gibi + cluster }, 10 * gibi, cluster, nil},
		"by less than a cluster":           {func(g *growth) { g.desired = 10*gibi + cluster - 1 }, 10 * gibi, 0, nil},
		"to the size it has":               {func(g *growth) { g.desired = 10 * gibi }, 10 * gibi, 0, nil},
		"to less":                          {func(g *growth) { g.desired = 5 * gibi }, 10 * gibi, 0, nil},
		"to the disk's size: all there is": {func(g *growth) { g.desired = size }, 10 * gibi, (end - 10*gibi) / cluster * cluster, nil},
		"beyond the disk":                  {func(g *growth) { g.desired = size + 1 }, 10 * gibi, 0, backend.ErrOutOfRange},
		"a negative size":                  {func(g *growth) { g.desired = -1 }, 10 * gibi, 0, backend.ErrInvalid},
		"no such partition":                {func(g *growth) { g.offset++ }, 10 * gibi, 0, backend.ErrNotFound},
		"a filesystem without clusters":    {func(g *growth) { g.cluster = 0 }, 10 * gibi, 0, backend.ErrPrecondition},
		"another partition behind it": {
			func(g *growth) { g.layout.Partitions = append(g.layout.Partitions, behind(whole)) },
			gibi, 0, backend.ErrPrecondition,
		},
		"another behind it, and no growth": {
			func(g *growth) { g.layout.Partitions, g.desired = append(g.layout.Partitions, behind(whole)), gibi },
			gibi, 0, nil,
		},
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
			cluster: int64(512) << rapid.IntRange(0, 12).Draw(t, "cluster"), desired: rapid.Int64Range(0, size).Draw(t, "desired"),
		}
		bytes, err := g.plan()
		if err != nil {
			t.Fatal(err)
		}
		after := length + bytes
		if bytes < 0 || bytes%g.cluster != 0 || bytes > 0 &&
			(17*mebi+after > usableEnd(g.layout, size, 512) || g.desired != 0 && after > g.desired) {
			t.Fatalf("%d more than %d of %d, desired %d", bytes, length, size, g.desired)
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
