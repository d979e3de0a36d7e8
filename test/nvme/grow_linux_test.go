//go:build nvme

package nvme

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// target is an NVMe target of this machine's own kernel, which the machine is
// connected to over its loopback. QEMU's disks do not report when they grow; this
// one does as an EBS volume does, by a notice that a namespace has changed (NVM
// Express base specification, "Namespace Attribute Changed").
type target struct {
	t                    *testing.T
	file, subsystem, nqn string
}

const configfs = "/sys/kernel/config/nvmet"

func newTarget(t *testing.T, volume string, size int64) *target {
	t.Helper()
	nqn := "nqn.2026-01.test:" + volume
	d := &target{t: t, file: filepath.Join("/tmp", volume), nqn: nqn, subsystem: filepath.Join(configfs, "subsystems", nqn)}
	must(t, os.WriteFile(d.file, nil, 0o600))
	must(t, os.Truncate(d.file, size))
	must(t, os.Mkdir(d.subsystem, 0o755))
	space, link := filepath.Join(d.subsystem, "namespaces/1"), filepath.Join(configfs, "ports/1/subsystems", nqn)
	t.Cleanup(func() {
		d.disconnect()
		for _, path := range []string{link, space, d.subsystem, d.file} {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	must(t, os.Mkdir(space, 0o755))
	port := filepath.Join(configfs, "ports/1")
	if _, err := os.Stat(port); err != nil {
		must(t, os.Mkdir(port, 0o755))
		d.set(port, "addr_adrfam", "ipv4")
		d.set(port, "addr_trtype", "tcp")
		d.set(port, "addr_traddr", "127.0.0.1")
		d.set(port, "addr_trsvcid", "4420")
	}
	d.set(d.subsystem, "attr_allow_any_host", "1")
	d.set(d.subsystem, "attr_serial", strings.Replace(volume, "-", "", 1))
	d.set(d.subsystem, "attr_model", nodeside.AmazonModel)
	d.set(space, "device_path", d.file)
	d.set(space, "buffered_io", "1") // the file is on a tmpfs
	d.set(space, "enable", "1")
	must(t, os.Symlink(d.subsystem, link))
	d.connect()
	return d
}

func (d *target) set(dir, name, value string) {
	d.t.Helper()
	must(d.t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o200))
}

func (d *target) connect() {
	d.t.Helper()
	fabrics, err := os.OpenFile("/dev/nvme-fabrics", os.O_RDWR, 0)
	must(d.t, err)
	defer fabrics.Close()
	_, err = fmt.Fprintf(fabrics, "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=%s", d.nqn)
	must(d.t, err)
}

func (d *target) disconnect() {
	d.t.Helper()
	controllers, err := filepath.Glob("/sys/class/nvme/nvme*/subsysnqn")
	must(d.t, err)
	for _, path := range controllers {
		if nqn, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(nqn)) == d.nqn {
			must(d.t, os.WriteFile(filepath.Join(filepath.Dir(path), "delete_controller"), []byte("1"), 0o200))
		}
	}
}

// grow makes the disk larger, and notifies connected hosts.
func (d *target) grow(size int64) {
	d.t.Helper()
	must(d.t, os.Truncate(d.file, size))
	d.set(filepath.Join(d.subsystem, "namespaces/1"), "revalidate_size", "1")
}

func filesystemSize(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Statfs_t
	must(t, unix.Statfs(path, &stat))
	return int64(stat.Blocks) * stat.Bsize
}

// A mounted filesystem grows online when its volume has grown.
func TestExpand_growsAMountedFilesystem(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			const before, after = 320 * mebibyte, 640 * mebibyte
			disk := newTarget(t, volumeA, before)
			p := newPlugin(t, func(o *nodeside.Options) { o.Model = nodeside.AnyModel })
			must(t, p.stage(volumeA, fsType, nil))
			p.write(volumeA, "kept")
			disk.grow(after)
			eventually(t, "the kernel sees the new size", func() bool {
				size, err := p.node.ResizeDevice(t.Context(), volumeA)
				return err == nil && size == after
			})
			size, err := p.engine.Expand(t.Context(), node.ExpandRequest{VolumeID: volumeA, VolumePath: p.staging(volumeA),
				Range: backend.SizeRange{Required: after}})
			if err != nil || size != after {
				t.Fatalf("%d, %v", size, err)
			}
			if grown := filesystemSize(t, p.staging(volumeA)); grown < 550*mebibyte {
				t.Errorf("the filesystem has %d bytes", grown)
			}
			p.wantFile(volumeA, "kept")
			p.unstage(volumeA)
		})
	}
}

// The kernel rejects two PCIe disks with one serial number. It accepts a disk of the
// network with the serial number of a PCIe disk.
func TestStage_refusesTwoDisksOfOneSerial(t *testing.T) {
	plug(t, 0, volumeA)
	newTarget(t, volumeA, 64*mebibyte)
	eventually(t, "the disks come", func() bool { return len(nvmeDisks(t)) == 2 })
	p := newPlugin(t, func(o *nodeside.Options) { o.Model = nodeside.AnyModel })
	if err := p.stage(volumeA, "ext4", nil); !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("%v", err)
	}
}

// An NVMe target on the network chooses the serial numbers and models of its disks,
// so a serial number alone does not identify an EBS volume.
func TestStage_refusesADiskOfTheNetwork(t *testing.T) {
	newTarget(t, volumeB, 64*mebibyte)
	p := newPlugin(t, func(o *nodeside.Options) { o.Model = "" })
	err := p.stage(volumeB, "ext4", nil)
	if !errors.Is(err, backend.ErrPrecondition) {
		t.Fatalf("%v", err)
	}
	t.Log(err)
}
