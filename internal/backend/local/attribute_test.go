package local

import (
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestAttribute(t *testing.T) {
	for name, c := range map[string]struct {
		used                      int64
		volumes                   volumeTotals
		snapshots, partial, trash int64
		want                      backend.PoolUse
	}{
		"an empty pool":                     {used: 5, want: backend.PoolUse{Other: 5}},
		"volumes alone":                     {used: 105, volumes: volumeTotals{allocated: 100, exclusive: 100}, want: backend.PoolUse{Volumes: 100, Other: 5}},
		"a copied snapshot":                 {used: 205, volumes: volumeTotals{allocated: 100, exclusive: 100}, snapshots: 100, want: backend.PoolUse{Volumes: 100, Snapshots: 100, Other: 5}},
		"a new snapshot that shares all":    {used: 105, volumes: volumeTotals{allocated: 100}, snapshots: 100, want: backend.PoolUse{Snapshots: 100, Other: 5}},
		"its volume was rewritten in part":  {used: 145, volumes: volumeTotals{allocated: 100, exclusive: 40}, snapshots: 100, want: backend.PoolUse{Volumes: 40, Snapshots: 100, Other: 5}},
		"two snapshots of the same blocks":  {used: 105, volumes: volumeTotals{allocated: 100}, snapshots: 200, want: backend.PoolUse{Snapshots: 105}},
		"a clone and its source":            {used: 100, volumes: volumeTotals{allocated: 200}, want: backend.PoolUse{Volumes: 100}},
		"trash and partial copies":          {used: 65, volumes: volumeTotals{allocated: 10, exclusive: 10}, partial: 20, trash: 30, want: backend.PoolUse{Volumes: 10, Partial: 20, Trash: 30, Other: 5}},
		"measured before blocks were freed": {used: 10, volumes: volumeTotals{allocated: 100, exclusive: 100}, trash: 5, want: backend.PoolUse{Volumes: 10}},
	} {
		got := attribute(c.used, c.volumes, c.snapshots, c.partial, c.trash)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if sum := got.Volumes + got.Snapshots + got.Partial + got.Trash + got.Other; sum != c.used {
			t.Errorf("%s: the parts are %d of %d bytes", name, sum, c.used)
		}
	}
}
