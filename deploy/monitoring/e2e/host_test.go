//go:build monitoring

package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const otherDriver = "other.example.com"

// machine is a host with its own driver on a small pool, and a second driver as a unit
// with a pool on an ext4 with few inodes.
type machine struct {
	t          *testing.T
	directory  string // short: it is part of sockets' paths
	root       string
	host       *process
	page       string // address of the host's metrics
	driverPage string // of the second driver's
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	directory, err := os.MkdirTemp("", "hm") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, directory: directory, root: filepath.Join(directory, "r"), page: address(t), driverPage: address(t)}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	disk(t, m.file("pool.img"), 400<<20, filepath.Join(m.root, "pool"), "mkfs.xfs", "-q")
	disk(t, m.file("other.img"), 64<<20, m.file("other"), "mkfs.ext4", "-q", "-N", "128")
	m.certify(time.Now().Add(365 * 24 * time.Hour))
	m.unit(programs.holdfast, "")
	m.host = start(t, "host", programs.holdfast, "host", "--root="+m.root, "--log-format=json",
		"--metrics-address="+m.page, "--metrics-volumes=10", "--metrics-cert-file="+m.file("tls.crt"), "--metrics-key-file="+m.file("tls.key"))
	t.Cleanup(m.end)
	eventually(t, "the host answers", func() string {
		if output, err := m.try("get", "drivers"); err != nil || !strings.Contains(output, otherDriver) {
			return output
		}
		return ""
	})
	return m
}

func (m *machine) targets() []target {
	return []target{
		{job: "host", address: m.page, https: true},
		{job: "driver", address: m.driverPage, native: true},
	}
}

// end removes the driver and the volumes, as an operator would.
func (m *machine) end() {
	m.host.signal(syscall.SIGCONT)
	for _, pid := range m.drivers() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	m.must("delete", "pod/data", "pvc/data", "pvc/second", "pvc/wrong", "--ignore-not-found")
	m.stopDriver()
	m.host.stop()
}

// stopDriver removes the unit of the second driver and waits for its end.
func (m *machine) stopDriver() {
	m.t.Helper()
	if err := os.Remove(m.unitFile()); err != nil {
		m.t.Error(err)
	}
	eventually(m.t, "the driver ends", func() string {
		if pids := m.drivers(); len(pids) != 0 {
			return fmt.Sprintf("processes %v", pids)
		}
		return ""
	})
}

func (m *machine) file(name string) string { return filepath.Join(m.directory, name) }

// certify writes the certificate of the host's page.
func (m *machine) certify(until time.Time) {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: until, DNSNames: []string{"localhost"}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		m.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		write(m.t, m.file(name+".new"), string(pem.EncodeToMemory(block)))
		if err := os.Rename(m.file(name+".new"), m.file(name)); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) unitFile() string { return filepath.Join(m.root, "drivers.d", "other.yaml") }

// unit writes the unit of the second driver, with a program that may be a wrong one.
func (m *machine) unit(program, restart string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.unitFile()), 0o700); err != nil {
		m.t.Fatal(err)
	}
	text := fmt.Sprintf("name: %s\nregister: true\n%scommand:\n", otherDriver, restart)
	for _, word := range []string{
		program, "driver", "--backend=local", "--driver-name=" + otherDriver, "--node-id=$(NODE_NAME)",
		"--endpoint=$(CSI_ENDPOINT)", "--pool=" + m.file("other") + "/pool", "--metrics-address=" + m.driverPage, "--metrics-volumes=10",
	} {
		text += fmt.Sprintf("  - %q\n", word)
	}
	hidden := filepath.Join(filepath.Dir(m.unitFile()), ".other") // which the host ignores
	write(m.t, hidden, text)
	if err := os.Rename(hidden, m.unitFile()); err != nil {
		m.t.Fatal(err)
	}
}

// drivers are the processes of the second driver.
func (m *machine) drivers() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if bytes.Contains(line, []byte("--driver-name="+otherDriver)) && bytes.Contains(line, []byte(m.directory)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// try runs a command of holdfast against the host.
func (m *machine) try(arguments ...string) (string, error) {
	command := exec.Command(programs.holdfast, arguments...)
	command.Env = append(os.Environ(), "HOLDFAST_ROOT="+m.root)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (m *machine) must(arguments ...string) {
	m.t.Helper()
	if output, err := m.try(arguments...); err != nil {
		m.t.Errorf("holdfast %v: %v\n%s", arguments, err, output)
	}
}

// apply applies a manifest.
func (m *machine) apply(text string, flags ...string) {
	m.t.Helper()
	path := m.file("manifest.yaml")
	write(m.t, path, text)
	m.must(append([]string{"apply", "-f", path}, flags...)...)
}

// claimOf is a claim of a class of its own.
func claimOf(name, driver, parameters string) string {
	return fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: %s, parameters: {%s}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %[1]s}, spec: {storageClassName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}}
`, name, driver, parameters)
}

// podOf is a pod that writes to a claim, reads from its device, and goes on running. Direct I/O
// is in sectors of the device, 4 KiB on some machines.
func podOf(name string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
    - {name: main, image: none, command: [sh, -c, "while sleep 0.2; do date > /data/now; sync /data/now; dd if=/data/now iflag=direct bs=4k; done"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[1]s}}]
`, name)
}
