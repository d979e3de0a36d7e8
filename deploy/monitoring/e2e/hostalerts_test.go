//go:build monitoring

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAlerts_ofTheHost injects one fault after another into the pools, drivers and
// certificate of a running host.
func TestAlerts_ofTheHost(t *testing.T) {
	m := newMachine(t)
	spare := m.occupy("spare", func(int64) int64 { return 32 << 20 }) // for the repair of the pool that fills
	w := watch(t, m.targets()...)
	w.quiet()
	for _, fault := range []struct {
		name string
		test func(*machine, *watcher)
	}{
		{"a pool that is full", poolFull},
		{"a pool without inodes", inodesLow},
		{"a pool that is read-only", poolReadOnly},
		{"deleted files that cannot be removed", poolDegraded},
		{"a disk that hangs", driverHangs},
		{"a volume for which there is no room", callFails},
		{"a driver that hangs", driverStops},
		{"a driver that ends again and again", driverRestarts},
		{"a certificate that expires", certificateExpires},
		{"a host that hangs", targetDown},
		{"a pool that fills", func(m *machine, w *watcher) { poolFullSoon(m, w, spare) }}, // the last one: it needs the most time
	} {
		t.Run(fault.name, func(t *testing.T) {
			outer := m.t
			here := *w
			here.t, m.t = t, t
			defer func() { m.t = outer }()
			fault.test(m, &here)
		})
	}
}

// occupy allocates some of the available bytes of the host's pool, until the returned
// function is called.
func (m *machine) occupy(name string, of func(available int64) int64) (empty func()) {
	m.t.Helper()
	path := filepath.Join(m.root, "pool", name)
	file, err := os.Create(path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var space syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &space); err != nil {
		m.t.Fatal(err)
	}
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, of(int64(space.Bavail)*space.Bsize)); err != nil {
		m.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			m.t.Error(err)
		}
	}
}

// fill leaves 2 MiB of the host's pool.
func (m *machine) fill() (empty func()) {
	m.t.Helper()
	return m.occupy("filler", func(available int64) int64 { return available - 2<<20 })
}

func poolFull(m *machine, w *watcher) {
	empty := m.fill()
	w.fires("HoldfastPoolFull")
	w.fires("HoldfastPoolNearlyFull")
	empty()
	w.stops("HoldfastPoolFull", "HoldfastPoolNearlyFull")
}

func inodesLow(m *machine, w *watcher) {
	directory := filepath.Join(m.directory, "other", "files")
	if err := os.Mkdir(directory, 0o700); err != nil {
		m.t.Fatal(err)
	}
	for i := 0; ; i++ {
		if file, err := os.Create(filepath.Join(directory, strconv.Itoa(i))); err != nil {
			break // no inode is left
		} else {
			_ = file.Close()
		}
	}
	w.fires("HoldfastPoolInodesLow")
	if err := os.RemoveAll(directory); err != nil {
		m.t.Fatal(err)
	}
	w.stops("HoldfastPoolInodesLow")
}

// poolReadOnly makes the kernel find an error in the pool's filesystem, whose repair is
// that of the runbook.
func poolReadOnly(m *machine, w *watcher) {
	pool := filepath.Join(m.directory, "other")
	device, err := exec.Command("findmnt", "--noheadings", "--output=SOURCE", "--target="+pool).Output()
	if err != nil {
		m.t.Fatal(err)
	}
	loop := filepath.Base(strings.TrimSpace(string(device)))
	write(m.t, filepath.Join("/sys/fs/ext4", loop, "trigger_fs_error"), "1")
	w.fires("HoldfastPoolUnusable")
	m.stopDriver()
	command(m.t, "umount", pool)
	if output, err := exec.Command("e2fsck", "-fy", m.file("other.img")).CombinedOutput(); err != nil && !repaired(err) {
		m.t.Fatalf("e2fsck: %v\n%s", err, output)
	}
	command(m.t, "mount", "-o", "loop,errors=remount-ro", m.file("other.img"), pool)
	m.unit(programs.holdfast, "")
	w.stops("HoldfastPoolUnusable", "HoldfastTargetDown", "HoldfastDriverNotRegistered")
}

// repaired reports whether e2fsck found errors and corrected all.
func repaired(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 1
}

// poolDegraded deletes a volume whose file cannot be removed.
func poolDegraded(m *machine, w *watcher) {
	m.apply(claimOf("kept", "local.holdfast.dev", ""), "--wait")
	volumes, err := filepath.Glob(filepath.Join(m.root, "pool", "volumes", "*", "data"))
	if err != nil || len(volumes) != 1 {
		m.t.Fatalf("volumes: %v, %v", volumes, err)
	}
	command(m.t, "chattr", "+i", volumes[0])
	m.must("delete", "pvc/kept", "sc/kept")
	w.fires("HoldfastPoolDegraded")
	trash, err := filepath.Glob(filepath.Join(m.root, "pool", "trash", "*", "data"))
	if err != nil || len(trash) != 1 {
		m.t.Fatalf("trash: %v, %v", trash, err)
	}
	command(m.t, "chattr", "-i", trash[0])
	w.stops("HoldfastPoolDegraded")
}

// driverHangs freezes the filesystem of the pool, as a disk that does not answer.
func driverHangs(m *machine, w *watcher) {
	pool := filepath.Join(m.root, "pool")
	command(m.t, "fsfreeze", "--freeze", pool)
	m.apply(claimOf("slow", "local.holdfast.dev", ""))
	w.fires("HoldfastDriverHangs")
	w.fires("HoldfastOperationHangs")
	command(m.t, "fsfreeze", "--unfreeze", pool)
	w.stops("HoldfastDriverHangs", "HoldfastOperationHangs")
	m.must("delete", "pvc/slow", "sc/slow")
}

// callFails asks for a volume for which there is no room.
func callFails(m *machine, w *watcher) {
	empty := m.fill()
	m.apply(claimOf("large", "local.holdfast.dev", ""))
	w.fires("HoldfastCallFails")
	w.fires("HoldfastOperationFails")
	empty()
	w.stops("HoldfastCallFails", "HoldfastOperationFails")
	m.must("delete", "pvc/large", "sc/large")
}

// driverStops stops the process of a driver that is asked for a volume.
func driverStops(m *machine, w *watcher) {
	pid := m.driver()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		m.t.Fatal(err)
	}
	m.apply(claimOf("stopped", otherDriver, ""))
	w.fires("HoldfastDriverUnhealthy")
	w.fires("HoldfastOperationHangs")
	w.fires("HoldfastTargetDown")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		m.t.Fatal(err)
	}
	w.stops("HoldfastDriverUnhealthy", "HoldfastOperationHangs", "HoldfastTargetDown")
	m.must("delete", "pvc/stopped", "sc/stopped")
}

// driver waits until the second driver is registered with one process, and returns its ID.
func (m *machine) driver() (pid int) {
	m.t.Helper()
	eventually(m.t, "the driver is registered", func() string {
		pids := m.drivers()
		output, err := m.try("get", "drivers")
		_, line, _ := strings.Cut(output, otherDriver)
		line, _, _ = strings.Cut(line, "\n")
		if err != nil || len(pids) != 1 || !strings.Contains(line, "Registered") {
			return fmt.Sprintf("processes %v, %s", pids, output)
		}
		pid = pids[0]
		return ""
	})
	return pid
}

func driverRestarts(m *machine, w *watcher) {
	m.unit("/bin/false", "restart: {first: 300ms, longest: 300ms}\n")
	w.fires("HoldfastDriverRestarts")
	w.fires("HoldfastDriverNotRegistered")
	m.unit(programs.holdfast, "")
	w.stops("HoldfastDriverRestarts", "HoldfastDriverNotRegistered", "HoldfastTargetDown")
}

func certificateExpires(m *machine, w *watcher) {
	m.certify(time.Now().Add(24 * time.Hour))
	w.fires("HoldfastCertificateExpires")
	m.certify(time.Now().Add(365 * 24 * time.Hour))
	w.stops("HoldfastCertificateExpires")
}

func targetDown(m *machine, w *watcher) {
	m.host.signal(syscall.SIGSTOP)
	w.fires("HoldfastTargetDown")
	m.host.signal(syscall.SIGCONT)
	w.stops("HoldfastTargetDown")
}

// poolFullSoon uses half of what the pool has left. The driver has a forecast when it knows
// ten minutes, which began with the test.
func poolFullSoon(m *machine, w *watcher, spare func()) {
	empty := m.occupy("growth", func(available int64) int64 { return available / 2 })
	w.firesWithin(10*time.Minute+patience, "HoldfastPoolFullSoon")
	empty()
	spare()
	w.stops("HoldfastPoolFullSoon")
}
