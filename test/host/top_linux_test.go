package host_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/top"
)

// writingPod writes to its volume without end, past the page cache.
const writingPod = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: busy}
spec:
  storageClassName: idle
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: none
    command: [sh, -c, "while :; do dd if=/dev/zero of=/data/x bs=64k count=64 oflag=direct conv=notrunc 2>/dev/null; done"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: busy}}]
---
`

// newBusyMachine has a pod that writes, and one that does nothing.
func newBusyMachine(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.start()
	m.apply(idleClass + writingPod + strings.ReplaceAll(sleepingPod, "NAME", "calm"))
	m.running("busy")
	m.running("calm")
	return m
}

func (m *machine) endBusy() {
	m.t.Helper()
	m.clear([]string{"busy", "calm"}, []string{"busy", "calm"})
}

func TestTop_theRatesOfRealDevices(t *testing.T) {
	m := newBusyMachine(t)
	defer m.endBusy()
	var report top.Report
	said, err := exec.Command(binary, "top", "--root", m.root, "--once", "-o", "json", "--interval", "1s").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := json.Unmarshal(said, &report); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	volumes := map[string]top.Volume{}
	for _, volume := range report.Volumes {
		volumes[volume.Namespace+"/"+volume.Name] = volume
	}
	busy, calm := volumes["default/busy"], volumes["default/calm"]
	switch {
	case len(volumes) != 2 || report.Volumes[0].Name != "busy":
		t.Errorf("the volumes are %s, want the busy one first", said)
	case !strings.HasPrefix(busy.Device, "loop") || busy.Rates == nil || busy.Rates.WrittenBytes < 64<<10 || busy.Rates.Writes < 1 || busy.Rates.WriteLatency <= 0:
		t.Errorf("the busy volume does %+v", busy.Rates)
	case calm.Rates == nil || calm.Rates.WrittenBytes >= busy.Rates.WrittenBytes:
		t.Errorf("the calm volume does %+v", calm.Rates)
	case busy.Bytes == nil || busy.Used() <= 0 || busy.Bytes.Total > 64<<20:
		t.Errorf("the use of the busy volume is %+v", busy.Bytes)
	}
	if len(report.Drivers) != 1 || report.Drivers[0].Mounted != 2 || report.Drivers[0].Volumes != 2 || report.Drivers[0].Promised != 96<<20 ||
		report.Drivers[0].Available == nil || *report.Drivers[0].Available <= 0 {
		t.Errorf("the drivers are %+v", report.Drivers)
	}
}

func TestTop_isLiveOnATerminal(t *testing.T) {
	m := newBusyMachine(t)
	defer m.endBusy()
	arguments := []string{"top", "--root", m.root, "--interval", "200ms"}
	screen := newTerminal(t, 60, 20, nil, arguments...)
	screen.from(0, "NAMESPACE", "busy", "calm", "local.holdfast.dev", "sort: io")
	if text := screen.written(); strings.Contains(text, "READ LATENCY") {
		t.Errorf("a line is longer than the screen: %q", text)
	}
	at := len(screen.written())
	screen.resize(160, 20)
	at = screen.from(at, "READ LATENCY", "SIZE")
	// Only what changes is drawn.
	screen.press("/")
	at = screen.from(at, "filter: ", "esc: no filter")
	screen.press("calm\r")
	at = screen.from(at, ": calm", "1 volume")
	screen.press("s")
	at = screen.from(at, "read")
	screen.press("n")
	screen.from(at, "default")
	screen.press("q")
	if code := screen.wait(); code != 0 {
		t.Errorf("q ends it with %d", code)
	}
	if text := screen.written(); !strings.Contains(text, "\x1b[?1049h") || !strings.Contains(text, "\x1b[?1049l") {
		t.Error("the screen of before is not restored")
	}

	interrupted := newTerminal(t, 100, 30, []string{"NO_COLOR=1"}, arguments...)
	interrupted.from(0, "NAMESPACE", "busy")
	interrupted.press("\x03")
	if code := interrupted.wait(); code != 0 {
		t.Errorf("Ctrl-C ends it with %d", code)
	}
	if text := interrupted.written(); strings.Contains(text, "\x1b[31m") || strings.Contains(text, "\x1b[38;") {
		t.Errorf("with NO_COLOR there are colours: %q", text)
	}
}

// Without a terminal, tables are printed until the command is interrupted.
func TestTop_isTablesElsewhere(t *testing.T) {
	m := newBusyMachine(t)
	defer m.endBusy()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	printed := func() string {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	command := exec.Command(binary, "top", "--root", m.root, "--interval", "200ms", "--filter", "busy")
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limitOfTest, func() { _ = command.Process.Kill() })
	defer timer.Stop()
	m.until("two tables are printed", limitOfTest, func() bool { return strings.Count(printed(), "NAMESPACE ") >= 2 })
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("Ctrl-C ends it with %v", err)
	}
	if text := printed(); strings.Contains(text, "\x1b") || strings.Contains(text, "calm") || !strings.Contains(text, "busy") {
		t.Errorf("printed is\n%s", text)
	}
}
