package cluster

import (
	"slices"
	"testing"
)

func TestLoopsOf_takesWhatLiesOnAnotherFirst(t *testing.T) {
	const disk, devices = 0xfe00, 6
	all := []loop{
		{path: "pool", number: 0x704, file: fileID{disk, 1}},
		{path: "foreign", number: 0x701, file: fileID{disk, 2}},
		{path: "on foreign", number: 0x702, file: fileID{0x701, 1}},
		{path: "volume", number: 0x70b, node: fileID{devices, 11}, file: fileID{0x704, 1}},
		{path: "held by the kubelet", number: 0x70c, file: fileID{devices, 11}},
		{path: "other volume", number: 0x70d, file: fileID{0x704, 2}},
	}
	var got []string
	for _, l := range loopsOf(all, map[fileID]bool{{disk, 1}: true}) {
		got = append(got, l.path)
	}
	if want := []string{"held by the kubelet", "volume", "other volume", "pool"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
