package metrics

import (
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestVolumeInfos_areBoundedAndUnique(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewVolumeInfos(2, func() []VolumeInfo {
		return []VolumeInfo{
			{"d", "vol-3", "pv-3", "ns", "third"}, {"d", "vol-1", "pv-1", "ns", "first"}, {"d", "vol-2", "pv-2", "ns", "second"},
			{"d", "vol-1", "pv-9", "ns", "twin"}, {"e", "vol-9", "pv-8", "other", "ninth"},
		}
	}))
	got := slices.Sorted(maps.Keys(gathered(t, registry)))
	want := []string{ // the labels are in the order of their names
		"holdfast_volume_info d ns pv-1 first vol-1", "holdfast_volume_info d ns pv-2 second vol-2", "holdfast_volume_info e other pv-8 ninth vol-9",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the series are %q", got)
	}
}
