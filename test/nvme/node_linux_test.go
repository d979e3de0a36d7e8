//go:build nvme

package nvme

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

const (
	mebibyte = 1 << 20
	volumeA  = "vol-0123456789abcdef0"
	volumeB  = "vol-0123456789abcdef1"
	volumeC  = "vol-01234567" // the beginning of both
)

// blkZeroOut is BLKZEROOUT of linux/fs.h, which x/sys lacks.
const blkZeroOut = 0x127f

// plugin is the node engine with the EBS node half of this machine.
type plugin struct {
	t       *testing.T
	node    *nodeside.Node
	engine  *node.Engine
	kubelet string
}

func newPlugin(t *testing.T, change ...func(*nodeside.Options)) *plugin {
	t.Helper()
	dir := nodetest.Dir(t)
	o := nodeside.Options{StateDir: filepath.Join(dir, "state"), Model: emulated, Wait: 20 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, c := range change {
		c(&o)
	}
	n, err := nodeside.New(o)
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	p := &plugin{t: t, node: n, kubelet: filepath.Join(dir, "kubelet")}
	must(t, os.MkdirAll(p.kubelet, 0o750))
	p.engine, err = node.New(node.Options{Backend: n, KubeletDir: p.kubelet, Forbidden: []string{o.StateDir},
		Traits: backend.Traits{Filesystems: []string{"ext4", "ext3", "xfs"}, Block: true}})
	must(t, err)
	return p
}

func (p *plugin) staging(volume string) string {
	p.t.Helper()
	path := filepath.Join(p.kubelet, "plugins/kubernetes.io/csi/ebs.csi.aws.com", volume, "globalmount")
	must(p.t, os.MkdirAll(path, 0o750))
	return path
}

func (p *plugin) stage(volume, fsType string, volumeContext map[string]string) error {
	p.t.Helper()
	return p.engine.Stage(p.t.Context(), node.StageRequest{VolumeID: volume, StagingPath: p.staging(volume), VolumeContext: volumeContext,
		PublishContext: map[string]string{"devicePath": "/dev/xvdaa"}, Capability: backend.Capability{Mode: backend.SingleNodeWriter, FSType: fsType}})
}

func (p *plugin) unstage(volume string) {
	p.t.Helper()
	must(p.t, p.engine.Unstage(p.t.Context(), volume, p.staging(volume)))
}

func (p *plugin) write(volume, content string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.staging(volume), "file"), []byte(content), 0o600))
}

func (p *plugin) wantFile(volume, want string) {
	p.t.Helper()
	got, err := os.ReadFile(filepath.Join(p.staging(volume), "file"))
	if err != nil || string(got) != want {
		p.t.Fatalf("the file holds %q, %v; want %q", got, err, want)
	}
}

// wipe empties a disk that an earlier test wrote to.
func (p *plugin) wipe(volume string) {
	p.t.Helper()
	device, err := p.node.OpenDevice(p.t.Context(), backend.DeviceRequest{VolumeID: volume})
	must(p.t, err)
	file, err := os.OpenFile(device.Path, os.O_WRONLY, 0)
	must(p.t, err)
	all := [2]uint64{0, uint64(device.Size)} // BLKZEROOUT (linux/fs.h): from, how many bytes
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), blkZeroOut, uintptr(unsafe.Pointer(&all)))
	if errno != 0 {
		p.t.Fatal(errno)
	}
	must(p.t, errors.Join(file.Close(), device.Release()))
	must(p.t, p.node.CloseDevice(p.t.Context(), volume))
}

func overwrite(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

// A volume keeps its data from one attachment to the next, although its disk has another
// name.
func TestStage_findsTheVolumeUnderEveryName(t *testing.T) {
	for disk, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			p := newPlugin(t)
			plug(t, disk, volumeA)
			p.wipe(volumeA)
			for range 2 {
				must(t, p.stage(volumeA, fsType, nil))
			}
			p.write(volumeA, "kept")
			p.unstage(volumeA)
			p.unstage(volumeA)
			unplug(t, disk)
			plug(t, 3, volumeB) // takes the name that the volume had
			plug(t, disk, volumeA)
			must(t, p.stage(volumeA, fsType, nil))
			p.wantFile(volumeA, "kept")
			p.unstage(volumeA)
		})
	}
}

// The disk appears only after the call began.
func TestStage_waitsForADiskThatIsPluggedLater(t *testing.T) {
	p := newPlugin(t)
	staged := make(chan error, 1)
	go func() { staged <- p.stage(volumeA, "xfs", nil) }()
	time.Sleep(time.Second)
	select {
	case err := <-staged:
		t.Fatalf("did not wait: %v", err)
	default:
	}
	plug(t, 1, volumeA)
	plugged := time.Now()
	must(t, <-staged)
	t.Logf("staged %s after the disk was plugged", time.Since(plugged))
	p.unstage(volumeA)
}

func TestStage_refusesDisksOfOtherSerials(t *testing.T) {
	p := newPlugin(t, func(o *nodeside.Options) { o.Wait = time.Second })
	plug(t, 0, volumeB)
	eventually(t, "the disk comes", func() bool { return len(nvmeDisks(t)) == 1 })
	for _, volume := range []string{volumeA, volumeC} {
		if err := p.stage(volume, "ext4", nil); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", volume, err)
		}
	}
	strict := newPlugin(t, func(o *nodeside.Options) { o.Model = "" })
	if err := strict.stage(volumeB, "ext4", nil); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), emulated) {
		t.Errorf("took a disk that is none of EBS: %v", err)
	}
}

// NodeUnstageVolume succeeds after the disk of a mounted filesystem was detached.
func TestUnstage_clearsUpAfterADiskThatIsGone(t *testing.T) {
	p := newPlugin(t)
	plug(t, 0, volumeA)
	p.wipe(volumeA)
	must(t, p.stage(volumeA, "ext4", nil))
	unplug(t, 0)
	p.unstage(volumeA)
	if left := nodetest.MountsBelow(t, p.kubelet); len(left) != 0 {
		t.Fatalf("mounted: %v", left)
	}
	plug(t, 0, volumeA)
	must(t, p.stage(volumeA, "ext4", nil))
	p.unstage(volumeA)
}

// A mark that only mkfs has written to a volume is valid for one attachment.
func TestFormatMark_isVoidAfterADetach(t *testing.T) {
	p := newPlugin(t)
	plug(t, 2, volumeA)
	p.wipe(volumeA)
	interrupted := backend.FormatMark{FSType: "ext4"}
	must(t, p.node.SetFormatMark(t.Context(), volumeA, interrupted))
	if mark, err := p.node.FormatMark(t.Context(), volumeA); err != nil || mark != interrupted {
		t.Fatalf("%+v, %v", mark, err)
	}
	data := bytes.Repeat([]byte("data of another machine "), 1000)
	device, err := p.node.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA})
	must(t, err)
	must(t, errors.Join(overwrite(device.Path, data), device.Release()))
	unplug(t, 2)
	plug(t, 2, volumeA)
	if err := p.stage(volumeA, "ext4", nil); !errors.Is(err, backend.ErrPrecondition) {
		t.Fatalf("staged unknown data: %v", err)
	}
	if mark, err := p.node.FormatMark(t.Context(), volumeA); err != nil || mark != (backend.FormatMark{}) {
		t.Fatalf("%+v, %v", mark, err)
	}
}

// A raw block volume is published either to readers or to writers, since read-only
// is a property of the disk.
func TestPublish_readOnlyBlockRefusesWrites(t *testing.T) {
	p := newPlugin(t)
	plug(t, 0, volumeA)
	p.wipe(volumeA)
	block := backend.Capability{Mode: backend.SingleNodeMultiWriter, Block: true}
	must(t, p.engine.Stage(t.Context(), node.StageRequest{VolumeID: volumeA, StagingPath: p.staging(volumeA), Capability: block}))
	pods := filepath.Join(p.kubelet, "pods")
	must(t, os.MkdirAll(pods, 0o750))
	target := filepath.Join(pods, "first")
	publish := func(path string, readOnly bool) error {
		return p.engine.Publish(t.Context(), node.PublishRequest{VolumeID: volumeA, StagingPath: p.staging(volumeA), TargetPath: path,
			Capability: block, ReadOnly: readOnly})
	}
	for _, readOnly := range []bool{true, false} {
		must(t, publish(target, readOnly))
		if err := publish(filepath.Join(pods, "second"), !readOnly); !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("read-only %v next to read-only %v: %v", !readOnly, readOnly, err)
		}
		if err := writeByte(target); readOnly == (err == nil) {
			t.Errorf("read-only %v, and a write says %v", readOnly, err)
		}
		must(t, p.engine.Unpublish(t.Context(), volumeA, target))
	}
	p.unstage(volumeA)
}

func writeByte(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte{1}, 0)
	return errors.Join(err, file.Close())
}

func TestStage_mountsAPartition(t *testing.T) {
	p := newPlugin(t)
	plug(t, 0, volumeA)
	p.wipe(volumeA)
	device, err := p.node.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volumeA})
	must(t, err)
	must(t, overwrite(device.Path, dosTable(200*mebibyte, 100*mebibyte)))
	file, err := os.Open(device.Path)
	must(t, err)
	must(t, unix.IoctlSetInt(int(file.Fd()), unix.BLKRRPART, 0))
	must(t, errors.Join(file.Close(), device.Release()))
	must(t, p.stage(volumeA, "ext4", map[string]string{"partition": "2"}))
	var stat unix.Statfs_t
	must(t, unix.Statfs(p.staging(volumeA), &stat))
	if size := int64(stat.Blocks) * stat.Bsize; size > 100*mebibyte {
		t.Errorf("a filesystem of %d bytes on a partition of 100 MiB", size)
	}
	devices, err := p.node.Devices(t.Context(), volumeA)
	if err != nil || len(devices) != 3 {
		t.Errorf("%+v, %v", devices, err)
	}
	p.unstage(volumeA)
}

// dosTable is a partition table with partitions of these bytes.
func dosTable(sizes ...uint32) []byte {
	table := make([]byte, 512)
	start := uint32(2048)
	for i, size := range sizes {
		entry := table[446+16*i:]
		entry[4] = 0x83
		for shift := range 4 {
			entry[8+shift] = byte(start >> (8 * shift))
			entry[12+shift] = byte(size / 512 >> (8 * shift))
		}
		start += size / 512
	}
	table[510], table[511] = 0x55, 0xaa
	return table
}
