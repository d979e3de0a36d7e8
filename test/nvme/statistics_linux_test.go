//go:build nvme

package nvme

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodestats"
)

// thisMachine is this machine as an instance.
type thisMachine struct{}

func (thisMachine) Instance(context.Context) (metadata.Instance, error) {
	return metadata.Instance{ID: "i-0123456789abcdef0", Type: "m5.large", Zone: "us-east-1a"}, nil
}

// The emulated disks support the command for log pages, but lack this page. So they answer
// with a status of NVMe, and the system call returns no error.
func TestStatistics_ofADiskThatLacksThemAreLeftOut(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	p := newPlugin(t, func(o *nodeside.Options) {
		o.Metadata, o.Registerer, o.Logger = thisMachine{}, registry, slog.New(slog.NewTextHandler(&log, nil))
	})
	plug(t, 0, volumeA)
	device, err := p.node.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA})
	must(t, err)
	disk, err := os.Open(device.Path)
	must(t, err)
	_, err = nodestats.Read(disk)
	must(t, errors.Join(disk.Close(), device.Release()))
	if !errors.Is(err, nodestats.ErrNotAPage) || !strings.Contains(err.Error(), "status") {
		t.Errorf("the disk was not asked: %v", err)
	}
	for range 3 {
		families, err := registry.Gather()
		must(t, err)
		for _, family := range families {
			if family.GetName() == "aws_ebs_csi_read_ops_total" {
				t.Errorf("there are statistics: %v", family)
			}
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), volumeA) {
		t.Errorf("the log has\n%s", log.String())
	}
	must(t, p.node.CloseDevice(t.Context(), volumeA))
}
