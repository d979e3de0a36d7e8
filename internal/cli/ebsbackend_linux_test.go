package cli

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

func TestOpenEBS_nothingIsStagedOverTheNodesOwnFiles(t *testing.T) {
	kubelet := t.TempDir()
	opened, err := openEBS(t.Context(), driverConfig{
		mode: server.Node, backend: backendEBS, kubeletDir: kubelet, logger: slog.New(slog.DiscardHandler), registry: metrics.NewRegistry("v0"),
		ebs: ebsConfig{window: time.Second, lag: time.Second, stuck: time.Second, volumes: -1, reserved: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if own := filepath.Join(kubelet, "plugins/ebs.csi.aws.com/devices"); !slices.Contains(opened.forbidden, own) {
		t.Errorf("forbidden are %v; want %s among them", opened.forbidden, own)
	}
	if err := opened.close(); err != nil {
		t.Error(err)
	}
}
