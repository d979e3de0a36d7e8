package status_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// poolOnExt4 mounts a new ext4, which has no reflink: copies take long.
func poolOnExt4(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	image, at := filepath.Join(directory, "image"), filepath.Join(directory, "mounted")
	for _, command := range [][]string{
		{"mkdir", at}, {"truncate", "--size=1500M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, at},
	} {
		if output, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, output)
		}
	}
	t.Cleanup(func() {
		if output, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v\n%s", at, err, output)
		}
	})
	return filepath.Join(at, "pool")
}

// fill is a pod that writes 256 MiB to a claim and ends.
const fill = `apiVersion: v1
kind: Pod
metadata: {name: fill}
spec:
  restartPolicy: Never
  containers:
    - {name: main, image: none, command: [sh, -c, "dd if=/dev/urandom of=/data/x bs=1M count=256 && sync"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
    - {name: data, persistentVolumeClaim: {claimName: source}}
`

const copied = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: copy}
spec:
  storageClassName: late
  accessModes: [ReadWriteOnce]
  dataSource: {kind: PersistentVolumeClaim, name: source}
  resources: {requests: {storage: 400Mi}}
`

// observed collects the different states of the bar of the one step that runs.
const observed = `window.seen = [];
new MutationObserver(() => {
  const state = document.querySelector("svg.fill[aria-label$='done']")?.getAttribute("aria-label");
  if (state && state !== window.seen.at(-1)) window.seen.push(state);
}).observe(document.body, {subtree: true, childList: true, attributes: true});
true`

// A copy takes long. While it runs, the overview and the claim's page have a bar that moves,
// without a reload; afterwards there is none.
func TestProgress_ofALongStepIsDrawn(t *testing.T) {
	pool := poolOnExt4(t)
	t.Setenv("HOLDFAST_FAILPOINTS", "local/copy/chunk=slow") // 32 chunks: 3.2 s at least
	m := newMachine(t, "--pool", pool)
	m.apply(classes, strings.Replace(claim("source", "fast"), "64Mi", "400Mi", 1), fill)
	m.until("the volume is filled", func() bool {
		kind, _ := store.KindOf("pods")
		object, err := m.client.Get(t.Context(), kind, "default", "fill")
		pod, ok := object.(*corev1.Pod)
		return err == nil && ok && pod.Status.Phase == corev1.PodSucceeded
	})
	m.delete("pods", "fill")
	m.apply(copied)
	pages := map[string]*tab{"": newTab(t, 1100, 900), "pvc/default/copy": newTab(t, 1100, 900)}
	for path, p := range pages {
		p.open(m.url + path)
		p.until(`document.getElementById("live").textContent === "live"`)
		value[bool](p, observed)
	}
	m.apply(pod("reader", "copy")) // the copy begins
	m.bound("copy")
	for path, p := range pages {
		p.until(`!document.body.innerText.includes("copying")`)
		seen := value[[]string](p, "window.seen")
		t.Logf("page %q had the bars %q", path, seen)
		if len(seen) < 2 {
			t.Errorf("page %q had the bars %q only", path, seen)
		}
		p.isQuiet(originOf(t, m.url))
	}
	m.delete("pods", "reader")
	m.delete("persistentvolumeclaims", "copy")
	m.delete("persistentvolumeclaims", "source")
	if entries, err := os.ReadDir(filepath.Join(pool, "volumes")); err != nil || len(entries) != 0 {
		t.Errorf("%d volumes are left, %v", len(entries), err)
	}
}
