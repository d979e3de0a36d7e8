package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/usage"
)

// watching are the collectors that ask the backend, which must end before it closes.
type watching []interface {
	Close(ctx context.Context) error
}

func (w watching) close(ctx context.Context) error {
	var failed []error
	for _, one := range w {
		failed = append(failed, one.Close(ctx))
	}
	return errors.Join(failed...)
}

// watch exports what the backend says of its pools.
func (d *driverProcess) watch(driver string) error {
	var half any = d.backend.node
	if d.backend.node == nil {
		half = d.backend.controller
	}
	reporter, ok := half.(backend.PoolReporter)
	if !ok {
		return nil
	}
	pools := usage.NewPools(reporter, driver)
	d.watching = append(d.watching, pools)
	d.config.pools.add(driver, pools)
	if err := d.registry.Register(pools); err != nil {
		return fmt.Errorf("metrics of the pools: %w", err)
	}
	return nil
}
