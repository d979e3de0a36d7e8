package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// VolumeInfo names a volume in the words of its driver and of its users.
type VolumeInfo struct {
	Driver, ID       string // as in the labels driver_name and volume_id
	PersistentVolume string
	Namespace, Claim string
}

// VolumeInfos exports the names of single volumes, to join with their other metrics.
type VolumeInfos struct {
	limit int
	list  func() []VolumeInfo
	desc  *prometheus.Desc
}

// NewVolumeInfos returns a collector of at most limit volumes of each driver. list is
// called at each scrape, so it must not block.
func NewVolumeInfos(limit int, list func() []VolumeInfo) *VolumeInfos {
	return &VolumeInfos{limit: limit, list: list, desc: prometheus.NewDesc("holdfast_volume_info",
		"1, with the claim and the PersistentVolume of the volume as labels (with --metrics-volumes).",
		[]string{"driver_name", "volume_id", "namespace", "persistentvolumeclaim", "persistentvolume"}, nil)}
}

// Describe implements prometheus.Collector.
func (v *VolumeInfos) Describe(to chan<- *prometheus.Desc) { to <- v.desc }

// Collect implements prometheus.Collector. Of each driver it exports the first volumes by
// their IDs, the same ones at each scrape. If several objects name one volume, it exports
// the first of them: two series would break joins.
func (v *VolumeInfos) Collect(to chan<- prometheus.Metric) {
	all := slices.Clone(v.list())
	slices.SortFunc(all, func(a, b VolumeInfo) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.ID, b.ID), cmp.Compare(a.PersistentVolume, b.PersistentVolume))
	})
	all = slices.CompactFunc(all, func(a, b VolumeInfo) bool { return a.Driver == b.Driver && a.ID == b.ID })
	count := map[string]int{}
	for _, one := range all {
		if count[one.Driver]++; count[one.Driver] > v.limit {
			continue
		}
		to <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, 1,
			one.Driver, one.ID, one.Namespace, one.Claim, one.PersistentVolume)
	}
}
