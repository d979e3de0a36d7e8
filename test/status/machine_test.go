package status_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	built "github.com/holdfast-csi/holdfast/test/binary"
)

var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	directory, err := os.MkdirTemp("", "holdfast-status")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if binary, err = built.Build(context.Background(), directory, "holdfast"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// machine is a host with a status page.
type machine struct {
	t      *testing.T
	root   string
	client *api.Client
	host   *exec.Cmd
	log    *os.File
	url    string
}

// second is a driver in a process of its own, which a test can stop.
const second = "second.example"

// newMachine starts a host, with flags in addition to its own.
func newMachine(t *testing.T, flags ...string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test-status")
	}
	directory, err := os.MkdirTemp("", "hs") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: filepath.Join(directory, "r")}
	if m.log, err = os.Create(filepath.Join(directory, "log")); err != nil {
		t.Fatal(err)
	}
	m.client = api.DialRoot(m.root)
	m.writeDriver()
	m.host = exec.Command(binary, append([]string{"host", "--root", m.root, "--log-format=json", "--status-address=127.0.0.1:0"}, flags...)...)
	m.host.Stdout, m.host.Stderr = m.log, m.log
	if err := m.host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.end(directory) })
	m.until("the host serves the page", func() bool {
		m.url = m.logged("the status page is served", "url")
		return m.url != ""
	})
	return m
}

func (m *machine) writeDriver() {
	m.t.Helper()
	unit := fmt.Sprintf("name: %s\ncommand: [%s, driver, all, --backend=local, --driver-name=%s, --endpoint=$(CSI_ENDPOINT), --pool=%s, --kubelet-dir=%s]\nregister: true\n",
		second, binary, second, filepath.Join(m.root, "pool2"), m.root)
	if err := os.MkdirAll(filepath.Join(m.root, "drivers.d"), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.root, "drivers.d", "second.yaml"), []byte(unit), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// end ends the host and what outlives it.
func (m *machine) end(directory string) {
	if err := m.host.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Error(err)
	}
	if err := m.host.Wait(); err != nil {
		m.t.Errorf("the host ends with %v", err)
	}
	m.client.Close()
	for _, pid := range m.processes() {
		nodetest.Kill(m.t, pid, func(int) bool { return true })
	}
	nodetest.UnmountBelow(m.t, m.root)
	_ = m.log.Close()
	if m.t.Failed() {
		m.t.Logf("the log of the host is %s", m.log.Name())
		return
	}
	if err := os.RemoveAll(directory); err != nil {
		m.t.Error(err)
	}
}

// processes are those that have the root in their command line.
func (m *machine) processes() (found []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, entry := range entries {
		line, _ := os.ReadFile(entry)
		var pid int
		if _, err := fmt.Sscanf(entry, "/proc/%d/cmdline", &pid); err == nil && pid != m.host.Process.Pid && bytes.Contains(line, []byte(m.root+"/")) {
			found = append(found, pid)
		}
	}
	return found
}

// driver is the process of the second driver.
func (m *machine) driver() (pid int) {
	m.t.Helper()
	m.until("the second driver runs", func() bool {
		for _, one := range m.processes() {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", one)); bytes.Contains(line, []byte("--driver-name="+second)) {
				pid = one
			}
		}
		return pid != 0
	})
	return pid
}

// logged returns a value of the last message with a text in the host's log.
func (m *machine) logged(message, key string) (found string) {
	data, _ := os.ReadFile(m.log.Name())
	for line := range strings.Lines(string(data)) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			found, _ = entry[key].(string)
		}
	}
	return found
}

func (m *machine) until(what string, holds func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			data, _ := os.ReadFile(m.log.Name())
			m.t.Fatalf("not within %v: %s\n%s", limit, what, data[max(0, len(data)-4000):])
		}
	}
}

func (m *machine) apply(texts ...string) {
	m.t.Helper()
	files := []manifest.File{{Name: "test", Data: []byte(strings.Join(texts, "---\n"))}}
	if _, err := m.client.Apply(m.t.Context(), files, api.ApplyOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) delete(resource, name string) {
	m.t.Helper()
	kind, _ := store.KindOf(resource)
	ctx := context.WithoutCancel(m.t.Context()) // it may be the end of the test
	if _, err := m.client.Delete(ctx, kind, "default", name, api.DeleteOptions{}); err != nil {
		m.t.Error(err)
	}
	m.until(resource+" "+name+" is gone", func() bool {
		_, err := m.client.Get(ctx, kind, "default", name)
		return errors.Is(err, api.ErrNotFound)
	})
}

func (m *machine) bound(name string) {
	m.t.Helper()
	kind, _ := store.KindOf("persistentvolumeclaims")
	m.until("the claim "+name+" is bound", func() bool {
		object, err := m.client.Get(m.t.Context(), kind, "default", name)
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		return err == nil && ok && claim.Status.Phase == corev1.ClaimBound
	})
}

// The objects of the tests.
const classes = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: local.holdfast.dev
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: local.holdfast.dev
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: second}
provisioner: second.example
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: wrong}
provisioner: local.holdfast.dev
parameters: {tpye: ext4}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: fast}
driver: local.holdfast.dev
deletionPolicy: Delete
`

func claim(name, class string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  storageClassName: %s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
`, name, class)
}

func pod(name, claim string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: none, command: [sleep, infinity], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
    - {name: data, persistentVolumeClaim: {claimName: %s}}
`, name, claim)
}

func snapshot(name, claim string) string {
	return fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s}
spec:
  volumeSnapshotClassName: fast
  source: {persistentVolumeClaimName: %s}
`, name, claim)
}
