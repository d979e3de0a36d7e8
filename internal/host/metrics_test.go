package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

func TestDriverMetrics_sayWhichDriversServe(t *testing.T) {
	instance := func(state plugins.State, serving bool) []api.DriverInstance {
		return []api.DriverInstance{{State: string(state), Serving: serving}}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newDriverMetrics(func() []api.Driver {
		return []api.Driver{
			{Name: "good", Instances: instance(plugins.StateRegistered, true), Unit: &api.DriverUnit{Restarts: 3}},
			{Name: "hangs", Instances: []api.DriverInstance{{State: string(plugins.StateRegistered), Serving: true, Unready: true}}},
			{Name: "away", Instances: instance(plugins.StateAway, false)},
			{Name: "failed", Instances: instance(plugins.StateFailed, false)},
			{Name: "ended", Instances: nil, Unit: &api.DriverUnit{State: "Waiting", Restarts: 7}},
			{Name: "rolling", Instances: append(instance(plugins.StateAway, false), instance(plugins.StateRegistered, true)...)},
			{Name: "", Instances: instance(plugins.StateFailed, false)},
		}
	}))
	want := `driver_healthy away 0
driver_healthy ended 0
driver_healthy failed 0
driver_healthy good 1
driver_healthy hangs 0
driver_healthy rolling 1
driver_registered away 1
driver_registered ended 0
driver_registered failed 0
driver_registered good 1
driver_registered hangs 1
driver_registered rolling 1
driver_restarts_total ended 7
driver_restarts_total good 3`
	if got := metricstest.Series(t, registry); got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
}

func TestMeasureStep_countsEndsOfAttempts(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	steps, err := newSteps(registry)
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{steps: steps}
	for _, event := range []volumes.Event{
		{Status: volumes.Started}, {Status: volumes.Done, Took: time.Second}, {Status: volumes.Started},
		{Status: volumes.Retrying, Err: errors.New("no answer")}, {Status: volumes.Failed, Err: errors.New("refused")},
		{Status: volumes.Retrying, Err: fmt.Errorf("ended: %w", context.Canceled)},
	} {
		event.Driver, event.Step = "d.example", volumes.StepStage
		h.measureStep(event)
	}
	want := `host_step_seconds d.example canceled stage 1
host_step_seconds d.example failed stage 1
host_step_seconds d.example ok stage 1
host_step_seconds d.example retry stage 1`
	if got := metricstest.Series(t, registry); got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
	(&Host{}).measureStep(volumes.Event{Status: volumes.Done}) // without metrics
}
