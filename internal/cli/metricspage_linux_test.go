package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

const metricsPage = "../../docs/reference/metrics.md"

func TestMetricsPage_hasThoseOfTheDriver(t *testing.T) {
	needRoot(t)
	c := sanityDriver(t.TempDir(), server.All)
	c.logger, c.registry, c.metricsVolumes = slog.New(slog.DiscardHandler), prometheus.NewRegistry(), 1
	process, err := newDriver(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	connection := client.NewInProcess(process.server.Intercept)
	process.server.Register(connection)
	if _, err := csi.NewControllerClient(connection).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "none"}); err != nil {
		t.Error(err)
	}
	metricstest.Check(t, metricstest.Part{Name: "driver", Page: metricsPage, Registries: []*prometheus.Registry{c.registry},
		Elsewhere: []string{"holdfast_pool_", "holdfast_volume", "holdfast_filesystem_frozen"},
		Gauges:    []string{"holdfast_rpc_oldest_seconds"}})
	metricstest.Check(t, metricstest.Part{Name: "local", Page: metricsPage, Registries: []*prometheus.Registry{c.registry},
		Elsewhere: []string{"holdfast_rpc_", "holdfast_step_", "holdfast_progress_"}, Gauges: []string{"holdfast_pool_full_seconds"}})
	if err := process.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMetricsPage_hasThoseOfTheBackendEBS(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "none")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "none")
	for _, half := range []struct {
		part       string
		mode       server.Mode
		histograms []string
	}{
		{"ebs-controller", server.Controller, []string{"aws_ebs_csi_api_request_duration_seconds", "holdfast_ec2_queue_wait_seconds"}},
		{"ebs-node", server.Node, []string{
			"aws_ebs_csi_nvme_collector_duration_seconds", "aws_ebs_csi_read_io_latency_seconds", "aws_ebs_csi_write_io_latency_seconds",
		}},
	} {
		registry := prometheus.NewRegistry()
		opened, err := openEBS(t.Context(), driverConfig{
			mode: half.mode, backend: backendEBS, kubeletDir: t.TempDir(), logger: slog.New(slog.DiscardHandler), registry: registry,
			ebs: ebsConfig{endpoint: "http://127.0.0.1:1", region: "us-east-1", window: time.Second, lag: time.Second, stuck: time.Second,
				volumes: -1, reserved: -1},
		})
		if err != nil {
			t.Fatal(err)
		}
		metricstest.Check(t, metricstest.Part{Name: half.part, Page: metricsPage, Registries: []*prometheus.Registry{registry}, Histograms: half.histograms,
			Gauges: []string{"holdfast_ec2_queue_oldest_seconds"}})
		if err := opened.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMetricsPage_hasThoseOfTheHost(t *testing.T) {
	needRoot(t)
	registry := prometheus.NewRegistry()
	opened, err := host.Open(t.Context(), host.Options{
		Root: filepath.Join(t.TempDir(), "root"), Logger: slog.New(slog.DiscardHandler), Registerer: registry, MetricsVolumes: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- opened.Serve(ctx, host.DaemonOptions{Version: "v0", Ready: func() { close(ready) }}) }()
	<-ready
	metricstest.Check(t, metricstest.Part{Name: "host", Page: metricsPage, Registries: []*prometheus.Registry{registry},
		Histograms: []string{"holdfast_host_step_seconds"},
		Gauges:     []string{"holdfast_operations", "holdfast_operation_oldest_seconds", "holdfast_volume_info"}})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}
