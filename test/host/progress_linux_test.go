package host_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

const filledClaim = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: now}
provisioner: local.holdfast.dev
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: source}
spec:
  storageClassName: now
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 600Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: fill}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: none
    command: [sh, -c, "dd if=/dev/urandom of=/data/x bs=1M count=256 && sync"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: source}}]
`

const copiedClaim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: copy}
spec:
  storageClassName: now
  accessModes: [ReadWriteOnce]
  dataSource: {kind: PersistentVolumeClaim, name: source}
  resources: {requests: {storage: 600Mi}}
`

// poolOnExt4 mounts a new ext4, which has no reflink, and returns a directory on it.
func (m *machine) poolOnExt4() string {
	m.t.Helper()
	image, at := m.root+".pool.img", m.directory("pool")
	for _, command := range [][]string{
		{"truncate", "--size=1500M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, at},
	} {
		if output, err := exec.CommandContext(m.t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			m.t.Fatalf("%v: %v\n%s", command, err, output)
		}
	}
	m.t.Cleanup(m.stop) // before the pool is unmounted
	return filepath.Join(at, "volumes")
}

// A copy on a pool without reflink takes long. While it runs, every surface says how far it
// is: the terminal of apply --wait, get, describe and the journal.
func TestProgress_ofACopyIsShown(t *testing.T) {
	m := newMachine(t)
	pool := m.poolOnExt4()
	t.Setenv("HOLDFAST_FAILPOINTS", "local/copy/chunk=slow") // 32 chunks: 3.2 s at least
	m.start("--pool", pool)
	m.apply(filledClaim)
	m.until("the volume is filled", limitOfTest, func() bool { return m.phase("fill") == "Succeeded" })
	m.clear([]string{"fill"}, nil)

	manifest := m.directory("manifests") + "/copy.yaml"
	if err := writeSynced(manifest, copiedClaim); err != nil {
		t.Fatal(err)
	}
	screen := newTerminal(t, 160, 30, nil, "apply", "--root", m.root, "-f", manifest, "--wait")
	screen.from(0, "create…", "░] ", "copying", " MiB/s", " left")
	m.saysAll("get", m.succeeds("get", "pvc"), "copying")
	m.saysAll("describe", m.succeeds("describe", "pvc", "copy"), "runs, copying", "of 25")
	said, _ := m.ask("why", "pvc/copy") // its exit code says that the claim waits
	m.saysAll("why", said, "is under way: copying")
	if code := screen.wait(); code != 0 {
		t.Errorf("apply ends with %d", code)
	}
	if last := screen.written()[strings.LastIndex(screen.written(), "create"):]; !strings.Contains(last, "create 600Mi") {
		t.Errorf("the last line is %q", last)
	}
	if said := m.succeeds("get", "pvc"); strings.Contains(said, "copying") || strings.Contains(said, "PROGRESS") {
		t.Errorf("after the copy get says\n%s", said)
	}
	story, err := m.client.Journal(t.Context(), "PersistentVolumeClaim", "default/copy")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range story.Steps {
		if step.Step == "create" && (step.Status != journal.Done || step.Progress != nil) {
			t.Errorf("the journal has %+v", step)
		}
	}
	m.clear(nil, []string{"copy", "source"})
}

// The host asks what the driver does while a step takes long. The answer is the state of
// that volume alone, and replaces the one before.
func TestProgress_inTheJournalIsReplaced(t *testing.T) {
	m := newMachine(t)
	pool := m.poolOnExt4()
	t.Setenv("HOLDFAST_FAILPOINTS", "local/copy/chunk=slow")
	m.start("--pool", pool)
	m.apply(filledClaim)
	m.until("the volume is filled", limitOfTest, func() bool { return m.phase("fill") == "Succeeded" })
	m.clear([]string{"fill"}, nil)
	m.apply(copiedClaim)
	var seen []progress.State
	m.until("the claim is bound", limitOfTest, func() bool {
		story, err := m.client.Journal(t.Context(), "PersistentVolumeClaim", "default/copy")
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, step := range story.Steps {
			if step.Status != journal.Started && step.Status != journal.Retrying {
				continue
			}
			if running++; step.Progress != nil {
				seen = append(seen, *step.Progress)
			}
		}
		if running > 1 {
			t.Fatalf("the journal has %d entries of what runs: %+v", running, story.Steps)
		}
		claim := m.claimOf("copy")
		return claim != nil && claim.Status.Phase == "Bound"
	})
	if len(seen) == 0 {
		t.Fatal("the journal had no progress")
	}
	for i, state := range seen {
		if state.Total < 256<<20 || state.Total > 300<<20 || i > 0 && state.Done < seen[i-1].Done {
			t.Errorf("the states were %+v", seen)
			break
		}
	}
	m.clear(nil, []string{"copy", "source"})
}
