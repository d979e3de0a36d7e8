package status

import (
	"cmp"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterPools are the pools that a cluster's objects tell of: the room that a driver has for
// each segment of its topology and class (CSIStorageCapacity), the smallest first. Classes
// with the same room are one pool. The size of a pool, and what uses it, is in no object.
func (v View) clusterPools() []Pool {
	type segment struct {
		driver, name string
		room         int64
	}
	classes := map[segment][]string{}
	for _, capacity := range all[*storagev1.CSIStorageCapacity](v.mirror, kindCapacity) {
		class, ok := one[*storagev1.StorageClass](v.mirror, kindClass, capacity.StorageClassName)
		if !ok || capacity.Capacity == nil {
			continue // of a class that was deleted, or not known to its driver
		}
		of := segment{driver: class.Provisioner, name: segmentName(capacity.NodeTopology), room: capacity.Capacity.Value()}
		classes[of] = append(classes[of], class.Name)
	}
	var pools []Pool
	for of, names := range classes {
		slices.Sort(names)
		pools = append(pools, Pool{Driver: of.driver, Name: of.name, Available: of.room, Classes: strings.Join(names, ", ")})
	}
	slices.SortFunc(pools, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Available, b.Available), strings.Compare(a.Driver, b.Driver), strings.Compare(a.Name, b.Name), strings.Compare(a.Classes, b.Classes))
	})
	return pools
}

// segmentName is the part of the topology, "" for all of it.
func segmentName(topology *metav1.LabelSelector) string {
	if topology == nil || len(topology.MatchLabels)+len(topology.MatchExpressions) == 0 {
		return ""
	}
	return metav1.FormatLabelSelector(topology)
}
