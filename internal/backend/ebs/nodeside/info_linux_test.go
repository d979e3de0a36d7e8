package nodeside

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

// known is a source of metadata that has every field.
type known metadata.Instance

func (k known) Instance(context.Context) (metadata.Instance, error) { return metadata.Instance(k), nil }

var thisInstance = known{ID: "i-0123456789abcdef0", Type: "m5.large", Region: "us-east-1", Zone: "us-east-1a", Interfaces: 2}

func TestNodeInfo_reportsIDTopologyAndLimit(t *testing.T) {
	m := newMachine(t)
	registry := prometheus.NewRegistry()
	n := m.node(func(o *Options) { o.Metadata, o.Registerer = thisInstance, registry })
	got, err := n.NodeInfo(t.Context())
	want := backend.NodeInfo{ID: "i-0123456789abcdef0", MaxVolumes: 25, Topology: backend.Topology{
		"topology.kubernetes.io/zone": "us-east-1a", "topology.ebs.csi.aws.com/zone": "us-east-1a", "kubernetes.io/os": "linux"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	families, err := registry.Gather()
	m.must(err)
	gauges := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			if strings.HasPrefix(name, "holdfast_") {
				gauges[name] = metric.GetGauge().GetValue()
			}
		}
	}
	wantGauges := map[string]float64{"holdfast_ebs_volume_limit": 25, "holdfast_ebs_attachment_slots type": 27,
		"holdfast_ebs_attachment_slots reserved": 1, "holdfast_ebs_attachment_slots interfaces": 1}
	if diff := cmp.Diff(wantGauges, gauges); diff != "" {
		t.Error(diff)
	}
}

func TestNodeInfo_hasTheOutpost(t *testing.T) {
	m := newMachine(t)
	instance := thisInstance
	instance.OutpostARN = "arn:aws-us-gov:outposts:us-gov-west-1:123456789012:outpost/op-0123456789abcdef0"
	got, err := m.node(func(o *Options) { o.Metadata = instance }).NodeInfo(t.Context())
	m.must(err)
	for key, want := range map[string]string{"partition": "aws-us-gov", "region": "us-gov-west-1", "account-id": "123456789012", "outpost-id": "op-0123456789abcdef0"} {
		if value := got.Topology["topology.ebs.csi.aws.com/"+key]; value != want {
			t.Errorf("%s is %q; want %q", key, value, want)
		}
	}
}

func TestNodeInfo_needsToKnowTheInstance(t *testing.T) {
	m := newMachine(t)
	if _, err := m.node().NodeInfo(t.Context()); !errors.Is(err, backend.ErrPrecondition) {
		t.Error(err)
	}
	chain := metadata.NewChain(metadata.Options{})
	if _, err := m.node(func(o *Options) { o.Metadata = chain }).NodeInfo(t.Context()); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

func TestNew_refusesTwoLimits(t *testing.T) {
	one := int64(1)
	if _, err := New(Options{Limits: limits.Config{Volumes: &one, Reserved: &one}}); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

// mountAt shows a disk with a filesystem somewhere.
func (p *plugged) mountAt(path string) {
	p.m.t.Helper()
	p.m.must(os.MkdirAll(path, 0o755))
	p.m.must(unix.Mount(filepath.Join(p.m.dev, p.name), path, "ext4", 0, ""))
	p.m.t.Cleanup(func() { _ = unix.Unmount(path, 0) })
}

// Only the volumes of others that are attached now count: not the driver's own, even if
// another process staged them before a reboot, and not those of the instance's start.
func TestForeignDisks_areThoseOfOthers(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	want := func(now time.Time, want int, what string) {
		t.Helper()
		if got, err := n.foreignDisks(now); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", what, got, err, want)
		}
	}
	now := time.Now()
	want(now, 0, "nothing attached")
	other := m.plug("nvme9n1", volumeC, mebibyte)
	m.attributes("nvme9n1", map[string]string{"device/model": "Amazon EC2 NVMe Instance Storage"})
	want(now, 0, "an instance store disk")
	other.unplug()

	root := m.plug("nvme0n1", volumeB, 16*mebibyte)
	m.mkfs(root)
	want(now, 0, "a volume that has just come, and whose user may come next")
	want(now.Add(idleGrace), 1, "a volume that was not used for long")
	root.mountAt(filepath.Join(m.dir, "root"))
	n = m.node()
	want(now, 1, "a volume that is mounted as no CSI volume is")

	ours := m.plug("nvme1n1", volumeA, 16*mebibyte)
	m.mkfs(ours)
	ours.mountAt(filepath.Join(m.dir, "kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0123/globalmount"))
	want(now.Add(time.Hour), 1, "one that another driver had staged")
	m.must(unix.Unmount(filepath.Join(m.dir, "kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0123/globalmount"), 0))
	m.must(m.open(n, volumeA).Release())
	n = m.node()
	want(now, 1, "one that this driver has opened")
	want(now.Add(time.Hour), 1, "the same, later")
	m.must(n.CloseDevice(t.Context(), volumeA))
	want(now.Add(time.Hour), 1, "the same, given back and not yet detached")
	want(now.Add(2*time.Hour), 2, "the same, never detached")
}

// A disk that a user attached, and that no process uses yet, occupies a slot at
// once: its device name is not one that the driver assigns.
func TestForeignDisks_areKnownByTheirDeviceNames(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	for name, want := range map[string]int{
		"/dev/sdf": 1, "sdf": 1, "/dev/xvdf": 1, "/dev/xvda": 1, "xvdba": 0, "/dev/xvdaa": 0, "/dev/xvddx": 0, "": 0,
	} {
		n.deviceName = func(*os.File) (string, error) { return name, nil }
		other := m.plug("nvme1n1", volumeB, mebibyte)
		if got, err := n.foreignDisks(time.Now()); err != nil || got != want {
			t.Errorf("attached as %q: %d foreign disks, %v; want %d", name, got, err, want)
		}
		other.unplug()
		if got, err := n.foreignDisks(time.Now()); err != nil || got != 0 {
			t.Errorf("%d foreign disks after it was detached, %v", got, err)
		}
	}
}

func TestForeignDisks_countsWhatOtherDevicesAreMadeOf(t *testing.T) {
	m := newMachine(t)
	m.plug("nvme0n1", volumeB, mebibyte)
	m.must(os.MkdirAll(filepath.Join(m.sys, "block/nvme0n1/holders/dm-0"), 0o755))
	if got, err := m.node().foreignDisks(time.Now()); err != nil || got != 1 {
		t.Errorf("%d, %v; want 1", got, err)
	}
}

func TestForeignDisks_onXen(t *testing.T) {
	m := newMachine(t)
	m.plugXen("xvda", "device/vbd/51712", mebibyte)
	m.plugXen("xvdf", "device/vbd/51792", mebibyte)
	n := m.node()
	device, err := n.OpenDevice(t.Context(), published("/dev/xvdf"))
	m.must(err)
	m.must(device.Release())
	now := time.Now()
	for _, at := range []time.Time{now, now.Add(2 * idleGrace)} {
		if got, err := n.foreignDisks(at); err != nil || got != 1 {
			t.Errorf("%d, %v; want the root alone", got, err)
		}
	}
}
