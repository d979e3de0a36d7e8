package status

import (
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

func TestPool_isDescribed(t *testing.T) {
	soon := int64(3600)
	for name, test := range map[string]struct {
		pool  api.Pool
		level Level
		use   string
		full  time.Duration
	}{
		"room":       {api.Pool{Size: 100, Available: 50, Used: map[string]int64{"volumes": 10, "snapshots": 30, "trash": 0, "other": 10}}, Good, "30 B snapshots, 10 B other files, 10 B volumes", 0},
		"little":     {api.Pool{Size: 100, Available: 15, FullSeconds: &soon}, Busy, "", time.Hour},
		"none":       {api.Pool{Size: 100, Available: 5}, Bad, "", 0},
		"a problem":  {api.Pool{Size: 100, Available: 50, Conditions: []string{"it is read-only"}}, Bad, "", 0},
		"unreadable": {api.Pool{}, Bad, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := poolsOfHost([]api.Pool{test.pool})[0]
			if got.Level() != test.level || got.Use != test.use || got.Full != test.full {
				t.Errorf("got %+v, level %s", got, got.Level())
			}
		})
	}
}
