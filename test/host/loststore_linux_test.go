package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// countingPod writes a line when its process starts.
const countingPod = `
apiVersion: v1
kind: Pod
metadata: {name: process}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sh, -c, "echo start >> /data/starts; sync; exec sleep 1000"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`

// counted runs the pod, and returns the file with its lines.
func (m *machine) counted() (starts string) {
	m.t.Helper()
	m.apply(firstClass + "---" + claimText("c", "first", 16, "") + "---" + countingPod)
	starts = filepath.Join(filepath.Dir(m.content(m.running("process"), "c")), "starts")
	m.until("the process started", limitOfTest, func() bool { return lines(starts) == 1 })
	return starts
}

// emptyStore writes the store of a host that has done nothing.
func emptyStore(t *testing.T, path string) {
	t.Helper()
	other := t.TempDir()
	opened, err := store.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(other, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A store that is lost while a pod runs: no start may end the pod, give its claim
// another volume, or replace a backup. A restored backup knows all of them.
func TestLostStore_isRefusedAndRestored(t *testing.T) {
	for _, damage := range []struct {
		name string
		do   func(path string) error
	}{
		{"removed", os.Remove},
		{"truncated to nothing", func(path string) error { return os.Truncate(path, 0) }},
		{"never used", func(path string) error { emptyStore(t, path+".other"); return os.Rename(path+".other", path) }},
	} {
		t.Run(damage.name, func(t *testing.T) {
			m := newMachine(t)
			m.start()
			starts := m.counted()
			volume := m.claimOf("c").Spec.VolumeName
			m.stop()
			path := filepath.Join(m.root, store.FileName)
			if err := damage.do(path); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				said := m.fails("host")
				says(t, said, "holdfast host restore", "holdfast host backups")
				if crashed(said) {
					t.Fatal(said)
				}
			}
			if len(m.shims()) == 0 || lines(starts) != 1 {
				t.Fatal("a host that refused to start ended the pod")
			}
			list := m.succeeds("host", "backups")
			says(t, list, "sound")
			newest := strings.Fields(strings.Split(list, "\n")[1])[0]
			says(t, m.succeeds("host", "restore", newest), "the store has now", "persistentvolumeclaims")
			m.start()
			m.running("process")
			if got := m.claimOf("c"); got == nil || got.Spec.VolumeName != volume {
				t.Errorf("the claim is %+v; its volume was %s", got, volume)
			}
			if n := lines(starts); n != 1 {
				t.Errorf("the process was started %d times", n)
			}
			m.clear([]string{"process"}, []string{"c"})
		})
	}
}

// An older store instead of the present one would lack later objects.
func TestLostStore_anOlderOneIsRefused(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.stop()
	path := filepath.Join(m.root, store.FileName)
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m.start()
	starts := m.counted()
	m.stop()
	if err := os.WriteFile(path, older, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, m.fails("host"), "is older than a backup of it", "holdfast host restore")
	m.succeeds("host", "restore", store.BackupName)
	m.start()
	m.running("process")
	if n := lines(starts); n != 1 {
		t.Errorf("the process was started %d times", n)
	}
	m.clear([]string{"process"}, []string{"c"})
}

// What an earlier host left is given up on request only, and stays in its storage.
func TestLostStore_anEmptyOneIsMadeOnRequest(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.counted()
	m.stop()
	backups, err := filepath.Glob(filepath.Join(m.root, store.BackupName+".*"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(m.root, store.FileName)); err != nil {
		t.Fatal(err)
	}
	for _, backup := range append(backups, filepath.Join(m.root, store.BackupName)) {
		if err := os.Remove(backup); err != nil {
			t.Fatal(err)
		}
	}
	says(t, m.fails("host"), "the pod default/process", "holdfast host init")
	says(t, m.succeeds("host", "init"), "no record")
	m.start()
	m.until("the pod that is given up has ended", limitOfTest, func() bool { return len(m.shims()) == 0 })
	if volumes, _ := filepath.Glob(filepath.Join(m.root, "pool", "volumes", "*")); len(volumes) != 1 {
		t.Errorf("the pool has %v; want the volume that was given up", volumes)
	}
	m.stop()
	m.start()
}

// The volumes in the pool are enough to refuse, after a reboot say.
func TestLostStore_volumesInThePoolAreEnough(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.used("c", "p")
	m.stop()
	m.loseMounts()
	for _, pattern := range []string{"host.db*", "pods/*", "plugins/kubernetes.io", "supervise"} {
		found, _ := filepath.Glob(filepath.Join(m.root, pattern))
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	says(t, m.fails("host"), "1 volumes and snapshots in the pool", "holdfast host init")
}

// A full disk delays only the backup.
func TestFullDisk_doesNotStopARestart(t *testing.T) {
	m := newMachine(t)
	m.ownFilesystem(120)
	m.start()
	m.apply(strings.Replace(firstClass, "{csi", "{provisioning: thick, csi", 1))
	m.apply(claimText("c", "first", 16, "") + "---" + strings.Replace(countingPod, "1000", "1001", 1))
	starts := filepath.Join(filepath.Dir(m.content(m.running("process"), "c")), "starts")
	m.until("the process started", limitOfTest, func() bool { return lines(starts) == 1 })
	before := readAll(t, m.root, store.BackupName+"*")
	ballast := filepath.Join(m.root, "ballast")
	fill(t, ballast)
	m.kill()
	m.start()
	m.running("process")
	if n := lines(starts); n != 1 {
		t.Errorf("the process was started %d times", n)
	}
	log, err := os.ReadFile(m.log.Name())
	if err != nil || !strings.Contains(string(log), "the store has no new backup") {
		t.Errorf("the log does not report the missing backup: %v", err)
	}
	says(t, m.succeeds("describe", "csinode", hostname(t)), "StoreBackupFailed", "no space left")
	for name, content := range before {
		if now, err := os.ReadFile(name); err != nil || string(now) != content {
			t.Errorf("the backup %s changed: %v", name, err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m.start()
	m.clear([]string{"process"}, []string{"c"})
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ToLower(name)
}

func readAll(t *testing.T, directory, pattern string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(directory, pattern))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = string(data)
	}
	return found
}
