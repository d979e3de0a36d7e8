package client_test

import (
	"context"
	"os"
	"path"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// plugin is the node half of a driver whose disks have the volume's ID for a serial
// number.
type plugin struct{ proxy *client.Client }

func newPlugin(o client.Options) (plugin, error) {
	o.Oldest = "v1" // the calls below are v1's
	proxy, err := client.New(o)
	return plugin{proxy}, err
}

// probe is Identity's Probe.
func (p plugin) probe(ctx context.Context) error {
	return p.proxy.Check(ctx)
}

// disk returns nil only if all disks of the machine were read and none is the volume's.
func (p plugin) disk(ctx context.Context, volumeID string) (*v1.Disk, error) {
	disks, err := p.proxy.ListDisks(ctx, &v1.ListDisksRequest{})
	if err != nil {
		return nil, err
	}
	unread := ""
	for _, disk := range disks.GetDisks() {
		if disk.GetIds().GetSerialNumber() == volumeID {
			return disk, nil
		}
		if disk.GetProblem() != "" {
			unread = disk.GetProblem()
		}
	}
	if unread != "" {
		return nil, status.Errorf(codes.Unavailable, "a disk that may be volume %s cannot be read: %s", volumeID, unread)
	}
	return nil, nil
}

func (p plugin) stage(ctx context.Context, volumeID, staging string) error {
	if _, err := p.proxy.Mkdir(ctx, &v1.MkdirRequest{Path: staging}); err != nil {
		return err
	}
	if _, err := p.proxy.Rescan(ctx, &v1.RescanRequest{}); err != nil {
		return err
	}
	disk, err := p.disk(ctx, volumeID)
	if err != nil {
		return err
	}
	if disk == nil {
		return status.Errorf(codes.Unavailable, "no disk of this machine is volume %s; is it attached?", volumeID)
	}
	if _, err := p.proxy.SetDiskState(ctx, &v1.SetDiskStateRequest{
		DiskNumber: disk.GetNumber(), ExpectedIds: disk.GetIds(), Online: true,
	}); err != nil {
		return err
	}
	made, err := p.proxy.PartitionDisk(ctx, &v1.PartitionDiskRequest{
		DiskNumber: disk.GetNumber(), ExpectedIds: disk.GetIds(),
	})
	if err != nil {
		return err
	}
	if _, err := p.proxy.FormatVolume(ctx, &v1.FormatVolumeRequest{
		VolumeId: made.GetVolumeId(), FileSystem: "NTFS", StagingPath: staging,
	}); err != nil {
		return err
	}
	_, err = p.proxy.ResizeVolume(ctx, &v1.ResizeVolumeRequest{VolumeId: made.GetVolumeId()})
	return err
}

func (p plugin) publish(ctx context.Context, staging, target string) error {
	parent := target[:strings.LastIndex(target, `\`)]
	if _, err := p.proxy.Mkdir(ctx, &v1.MkdirRequest{Path: parent}); err != nil {
		return err
	}
	_, err := p.proxy.LinkVolume(ctx, &v1.LinkVolumeRequest{StagingPath: staging, TargetPath: target})
	return err
}

func (p plugin) expand(ctx context.Context, volumePath string) (int64, error) {
	if _, err := p.proxy.Rescan(ctx, &v1.RescanRequest{}); err != nil {
		return 0, err
	}
	at, err := p.proxy.GetVolumeAtPath(ctx, &v1.GetVolumeAtPathRequest{Path: volumePath})
	if err != nil {
		return 0, err
	}
	grown, err := p.proxy.ResizeVolume(ctx, &v1.ResizeVolumeRequest{VolumeId: at.GetVolumeId()})
	return grown.GetSizeBytes(), err
}

func (p plugin) unpublish(ctx context.Context, target string) error {
	_, err := p.proxy.Rmdir(ctx, &v1.RmdirRequest{Path: target})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

func (p plugin) unstage(ctx context.Context, volumeID, staging string) error {
	exists, err := p.proxy.PathExists(ctx, &v1.PathExistsRequest{Path: staging})
	if err != nil || !exists.GetExists() {
		return err
	}
	at, err := p.proxy.GetVolumeAtPath(ctx, &v1.GetVolumeAtPathRequest{Path: staging})
	switch status.Code(err) {
	case codes.OK:
		if _, err := p.proxy.UnmountVolume(ctx, &v1.UnmountVolumeRequest{
			VolumeId: at.GetVolumeId(), StagingPath: staging,
		}); err != nil {
			return err
		}
	case codes.NotFound: // an earlier call has unmounted it
	default:
		return err
	}
	disk, err := p.disk(ctx, volumeID)
	if err != nil {
		return err
	}
	if disk != nil {
		if _, err := p.proxy.SetDiskState(ctx, &v1.SetDiskStateRequest{
			DiskNumber: disk.GetNumber(), ExpectedIds: disk.GetIds(), Online: false,
		}); err != nil {
			return err
		}
	}
	_, err = p.proxy.Rmdir(ctx, &v1.RmdirRequest{Path: staging})
	return err
}

// The guide's plugin takes a volume through its life, each call twice.
func TestGuide_itsPluginServesAVolume(t *testing.T) {
	const (
		gibibyte = int64(1) << 30
		staging  = proxytest.Kubelet + `\plugins\kubernetes.io\csi\x\a\globalmount`
		target   = proxytest.Kubelet + `\pods\u\volumes\kubernetes.io~csi\a\mount`
	)
	n := proxytest.New(t)
	number := n.MustAddDisk(windows.DiskSpec{Serial: "vol-a", Size: gibibyte, Bus: win32.BusSAS})
	p, err := newPlugin(n.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.proxy.Close() }()
	ctx := t.Context()
	twice := func(step string, call func() error) {
		t.Helper()
		for range 2 {
			if err := call(); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
		}
	}
	twice("probe", func() error { return p.probe(ctx) })
	twice("stage", func() error { return p.stage(ctx, "vol-a", staging) })
	twice("publish", func() error { return p.publish(ctx, staging, target) })
	if err := n.WriteFile(target+`\data`, 5); err != nil {
		t.Fatal(err)
	}
	if err := n.GrowDisk(number, 2*gibibyte); err != nil {
		t.Fatal(err)
	}
	twice("expand", func() error {
		size, err := p.expand(ctx, target)
		if err == nil && size < 2*gibibyte*9/10 {
			t.Errorf("it has %d bytes", size)
		}
		return err
	})
	twice("unpublish", func() error { return p.unpublish(ctx, target) })
	if !n.Exists(staging + `\data`) {
		t.Error("the file went with the link")
	}
	twice("unstage", func() error { return p.unstage(ctx, "vol-a", staging) })
	if disk := n.State().Disks[number]; disk.Online || n.Exists(staging) {
		t.Errorf("after the end: online %t, the directory is there %t", disk.Online, n.Exists(staging))
	}
	if lost := n.Losses(); len(lost) > 0 {
		t.Error(lost)
	}
}

// The guide shows the code that is compiled and run in this test.
func TestGuide_showsThisPlugin(t *testing.T) {
	const guide = "../../../docs/guides/windows-plugin-authors.md"
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("guide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(string(source), code) {
			t.Errorf("%s shows code that is not in %s:\n%s", path.Base(guide), "guide_test.go", code)
		}
	}
	if len(blocks) < 5 {
		t.Errorf("the guide shows %d pieces of code", len(blocks))
	}
}
