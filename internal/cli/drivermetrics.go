package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/usage"
)

// bindVolumeMetrics declares the flag that bounds the metrics of single volumes.
func bindVolumeMetrics(flags *pflag.FlagSet, volumes *uint) {
	flags.UintVar(volumes, "metrics-volumes", 0,
		"`NUMBER` of volumes in use that have metrics of their own: size, used bytes, I/O (default 0)")
}

// watching are the collectors that ask the storage, which must end before it closes.
type watching []watcher

type watcher interface {
	prometheus.Collector
	Close(ctx context.Context) error
}

func (w watching) close(ctx context.Context) error {
	var failed []error
	for _, one := range w {
		failed = append(failed, one.Close(ctx))
	}
	return errors.Join(failed...)
}

// watch exports what the backend says of its pools, and the engine of the volumes.
func (d *driverProcess) watch(driver string) error {
	var half any = d.backend.node
	if d.backend.node == nil {
		half = d.backend.controller
	}
	if reporter, ok := half.(backend.PoolReporter); ok {
		pools := usage.NewPools(reporter, driver)
		d.watching = append(d.watching, pools)
		d.config.pools.add(driver, pools)
	}
	type surveyor interface {
		Surveys() bool
		Survey(ctx context.Context) []usage.Volume
	}
	if engine, ok := d.engine.(surveyor); ok && engine.Surveys() {
		d.watching = append(d.watching, usage.NewVolumes(engine.Survey, driver, int(d.config.metricsVolumes)))
	}
	for _, collector := range d.watching {
		if err := d.registry.Register(collector); err != nil {
			return fmt.Errorf("metrics of the storage: %w", err)
		}
	}
	return nil
}
