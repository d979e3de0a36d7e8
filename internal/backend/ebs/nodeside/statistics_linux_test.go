package nodeside

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodestats"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// reported are the volumes of which a registry has statistics.
func reported(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var volumes []string
	for _, family := range families {
		if family.GetName() != "aws_ebs_csi_read_bytes_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["instance_id"] != thisInstance.ID {
				t.Errorf("the labels are %v", labels)
			}
			volumes = append(volumes, labels["volume_id"])
		}
	}
	return volumes
}

// The volume is the one whose serial number sysfs has for the very disk
// that is asked.
func TestStatistics_areOfTheDriversVolumes(t *testing.T) {
	m := newMachine(t)
	for i, id := range []string{volumeA, volumeB, volumeC} {
		m.plug(fmt.Sprintf("nvme%dn1", i), id, mebibyte)
	}
	asked := map[string]bool{}
	n := m.node(func(o *Options) { o.Metadata = thisInstance })
	registry := prometheus.NewRegistry()
	n.options.Registerer = registry
	m.must(n.registerStatistics(func(disk *os.File) (nodestats.Page, error) {
		asked[filepath.Base(disk.Name())] = true
		return nodestats.Page{}, nil
	}))
	m.open(n, volumeB)
	if volumes := reported(t, registry); !slices.Equal(volumes, []string{volumeB}) || len(asked) != 1 || !asked["nvme1n1"] {
		t.Errorf("volumes %v are reported, and disks %v were asked", volumes, asked)
	}
	m.must(n.Close())
	if volumes := reported(t, registry); volumes != nil {
		t.Errorf("after the end volumes %v are reported", volumes)
	}
}

// A driver of the same name may have staged volumes before this one replaced it.
func TestStatistics_areAlsoOfVolumesThatAnotherStaged(t *testing.T) {
	m := newMachine(t)
	a, b := m.plug("nvme0n1", volumeA, 4*mebibyte), m.plug("nvme1n1", volumeB, 4*mebibyte)
	staging := filepath.Join(nodetest.Dir(t), "plugins/kubernetes.io/csi/ebs.csi.aws.com/1/globalmount")
	elsewhere := filepath.Join(nodetest.Dir(t), "data")
	for path, p := range map[string]*plugged{staging: a, elsewhere: b} {
		m.must(os.MkdirAll(path, 0o750))
		m.mkfs(p)
		m.must(unix.Mount(filepath.Join(m.dev, p.name), path, "ext4", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(path, 0) })
	}
	n := m.node(func(o *Options) { o.MountPrefix = filepath.Dir(filepath.Dir(staging)) + "/" })
	if volumes, err := (statistics{n: n}).Volumes(); err != nil || !slices.Equal(volumes, []string{volumeA}) {
		t.Errorf("the volumes are %v, %v; want %s", volumes, err, volumeA)
	}
	n.options.MountPrefix = ""
	if volumes, err := (statistics{n: n}).Volumes(); err != nil || len(volumes) != 0 {
		t.Errorf("without a prefix the volumes are %v, %v", volumes, err)
	}
}

// A loop device does not support the command.
func TestStatistics_ofADiskThatRefusesAreLeftOut(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme0n1", volumeA, mebibyte)
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	n := m.node(func(o *Options) {
		o.Metadata, o.Registerer, o.Logger = thisInstance, registry, slog.New(slog.NewTextHandler(&log, nil))
	})
	m.open(n, volumeA)
	log.Reset()
	for range 3 {
		if volumes := reported(t, registry); len(volumes) != 0 {
			t.Errorf("volumes %v are reported", volumes)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), volumeA) {
		t.Errorf("the log has\n%s", log.String())
	}
}

func TestStatistics_ofAVolumeThatGoesMeanwhileAreNotFound(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme0n1", volumeA, mebibyte)
	n := m.node()
	s := statistics{n, func(*os.File) (nodestats.Page, error) {
		disk.unplug()
		return nodestats.Page{}, unix.ENODEV
	}}
	for _, when := range []string{"while it is asked", "before"} {
		if _, err := s.Statistics(volumeA); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("when it goes %s: %v", when, err)
		}
	}
}
