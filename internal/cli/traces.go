package cli

import (
	"context"
	"log/slog"

	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// The names of the processes in traces (service.name).
const (
	driverService   = "holdfast-driver"
	hostService     = "holdfast-host"
	sidecarsService = "holdfast-sidecars"
)

// closeTraces exports the last spans, whether ctx has ended or not.
func closeTraces(ctx context.Context, traces *telemetry.Tracing, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := traces.Close(ctx); err != nil {
		logger.Warn("the last spans were not sent", "error", err)
	}
}
