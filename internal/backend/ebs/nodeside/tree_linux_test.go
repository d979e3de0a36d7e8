package nodeside

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

const (
	mebibyte = 1 << 20
	volumeA  = "vol-0123456789abcdef0"
	volumeB  = "vol-0123456789abcdef1"
	volumeC  = "vol-01234567" // the beginning of volumeA's
)

// machine is a directory with the sysfs and the device nodes of an instance.
// Its disks are real loop devices under the names of NVMe ones.
type machine struct {
	t        testing.TB
	dir      string
	sys, dev string
	state    string
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	dir := nodetest.Dir(t)
	m := &machine{t: t, dir: dir, sys: filepath.Join(dir, "sys"), dev: filepath.Join(dir, "dev"), state: filepath.Join(dir, "state")}
	for _, d := range []string{filepath.Join(m.sys, "block"), m.dev} {
		m.must(os.MkdirAll(d, 0o755))
	}
	return m
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// node is the node half on this machine.
func (m *machine) node(change ...func(*Options)) *Node {
	m.t.Helper()
	o := Options{SysRoot: m.sys, DevRoot: m.dev, StateDir: m.state, Wait: time.Minute,
		Logger: slog.New(slog.NewTextHandler(m.t.Output(), nil))}
	for _, c := range change {
		c(&o)
	}
	n, err := New(o)
	m.must(err)
	m.t.Cleanup(func() { m.must(n.Close()) })
	return n
}

// plugged is a disk of a machine.
type plugged struct {
	m    *machine
	name string
	loop *blockdev.Loop
	file *os.File
}

// loop makes a disk that is not shown yet.
func (m *machine) loop(size int64) *plugged {
	m.t.Helper()
	file, err := os.CreateTemp(m.dir, "disk-")
	m.must(err)
	m.must(file.Truncate(size))
	loop, err := blockdev.AttachLoop(m.t.Context(), blockdev.LoopConfig{File: file, Path: file.Name()})
	m.must(err)
	p := &plugged{m: m, loop: loop, file: file}
	m.t.Cleanup(func() {
		_ = file.Close()
		if p.loop != nil {
			m.must(p.loop.Detach())
		}
	})
	m.must(loop.Close())
	return p
}

// plug shows a new disk under a name, as the kernel would show an EBS volume.
func (m *machine) plug(name, volume string, size int64) *plugged {
	m.t.Helper()
	p := m.loop(size)
	p.name = name
	m.attributes(name, map[string]string{
		"device/serial":    fmt.Sprintf("%-20s\n", strings.Replace(volume, "-", "", 1)),
		"device/model":     fmt.Sprintf("%-40s\n", AmazonModel),
		"device/transport": "pcie\n",
		"nsid":             "1\n",
		"size":             fmt.Sprintf("%d\n", size/512),
		"dev":              numberText(p.loop.Number),
	})
	p.makeNode()
	return p
}

func numberText(number uint64) string {
	return fmt.Sprintf("%d:%d\n", unix.Major(number), unix.Minor(number))
}

// attributes writes attributes of a disk. Those of a new one appear at once, as in
// sysfs.
func (m *machine) attributes(name string, values map[string]string) {
	m.t.Helper()
	dir := filepath.Join(m.sys, "block", name)
	target := dir
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		target = filepath.Join(m.sys, "new-"+name)
	}
	for attribute, value := range values {
		path := filepath.Join(target, attribute)
		m.must(os.MkdirAll(filepath.Dir(path), 0o755))
		m.must(os.WriteFile(path, []byte(value), 0o644))
	}
	if target != dir {
		m.must(os.MkdirAll(filepath.Dir(dir), 0o755))
		m.must(os.Rename(target, dir))
	}
}

func (p *plugged) makeNode() {
	p.m.t.Helper()
	p.m.must(unix.Mknod(filepath.Join(p.m.dev, p.name), unix.S_IFBLK|0o660, int(p.loop.Number)))
}

// unplug takes the disk's node and attributes away.
func (p *plugged) unplug() {
	p.m.t.Helper()
	p.m.must(os.Remove(filepath.Join(p.m.dev, p.name)))
	p.m.must(os.RemoveAll(filepath.Join(p.m.sys, "block", p.name)))
}

func (m *machine) open(n *Node, volume string) *backend.Device {
	m.t.Helper()
	device, err := n.OpenDevice(m.t.Context(), backend.DeviceRequest{VolumeID: volume})
	m.must(err)
	m.t.Cleanup(func() { _ = device.Release() })
	return device
}

// mkfs makes a filesystem without the driver.
func (m *machine) mkfs(p *plugged) {
	m.t.Helper()
	output, err := exec.Command("mkfs.ext4", "-q", "-F", p.file.Name()).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %s", err, output)
	}
}
