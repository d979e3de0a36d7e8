package usage

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

// reporter answers with its pools, once for each value in turn.
type reporter struct {
	pools []backend.Pool
	turn  chan struct{}
}

func (r *reporter) Pools(context.Context) []backend.Pool {
	<-r.turn
	return r.pools
}

// page is what a scrape finds.
func page(t *testing.T, collector prometheus.Collector) string {
	t.Helper()
	return metricstest.SeriesOf(t, collector, "driver_name", "pool")
}

func TestPools_page(t *testing.T) {
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	collector := NewPools(&reporter{turn: turns, pools: []backend.Pool{
		{Name: "/a", Size: 1000, Available: 400, Promised: 2000, Inodes: 10, InodesFree: 7,
			Used:       backend.PoolUse{Volumes: 100, Snapshots: 200, Partial: 50, Trash: 25, Other: 225},
			Conditions: []backend.HealthProblem{{Reason: "PoolNearlyFull"}, {Reason: "PoolNearlyFull"}}},
		{Name: "/b", Conditions: []backend.HealthProblem{{Reason: "PoolUnreachable"}}},
	}}, "local.holdfast.dev")
	want := `pool_available_bytes 400
pool_condition PoolNearlyFull 1
pool_condition PoolUnreachable 1
pool_inodes 10
pool_inodes_free 7
pool_promised_bytes 2000
pool_size_bytes 1000
pool_thin_ratio 2
pool_used_bytes other 225
pool_used_bytes partial 50
pool_used_bytes snapshots 200
pool_used_bytes trash 25
pool_used_bytes volumes 100`
	if got := page(t, collector); got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
}

// A backend that hangs must not hang the scrape, and shows in it.
func TestPools_thatDoNotAnswerAreACondition(t *testing.T) {
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	collector := NewPools(&reporter{turn: turns, pools: []backend.Pool{{Name: "/a", Size: 1000}}}, "d")
	collector.question.Fresh, collector.question.Share, collector.silence = 0, 0, 0
	if got := page(t, collector); strings.Contains(got, ConditionUnresponsive) {
		t.Fatalf("the first answer says\n%s", got)
	}
	if got := page(t, collector); !strings.Contains(got, "pool_condition PoolUnresponsive 1") || !strings.Contains(got, "pool_size_bytes 1000") {
		t.Errorf("a backend that hangs shows as\n%s", got)
	}
	turns <- struct{}{}
	if err := collector.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The path of a pool may have any bytes: a scrape must not end the driver.
func TestPools_aPathThatIsNotUTF8(t *testing.T) {
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewPools(&reporter{turn: turns, pools: []backend.Pool{{Name: "/a\xff", Size: 1000}}}, "d"))
	families, err := registry.Gather()
	if err != nil || len(families) == 0 || !strings.Contains(families[0].String(), "/a\uFFFD") {
		t.Errorf("got %v, %v", families, err)
	}
}
