package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func (w *world) adopt() {
	w.t.Helper()
	if err := w.manager.Adopt(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func TestAdopt_keepsWhatIsMountedWithoutACall(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	p := pod("web", "a")
	place := w.mount(p)["data"].Path
	before := len(w.driver.Calls())
	w.restart("boot-1", "")
	w.adopt()
	if again := w.mount(p)["data"].Path; again != place {
		t.Errorf("mounted at %s, before at %s", again, place)
	}
	if calls := w.driver.Calls()[before:]; len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
	w.unmount(p)
	w.isIdle()
}

func TestAdopt_afterARebootPodsMountAgain(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	p := pod("web", "a")
	place := w.mount(p)["data"].Path
	if err := unix.Unmount(place, 0); err != nil {
		t.Fatal(err)
	}
	w.restart("boot-2", "")
	w.adopt()
	w.mount(p)
	if got := w.driver.Count("NodePublishVolume"); got != 2 {
		t.Errorf("published %d times, want 2", got)
	}
	w.unmount(p)
	w.isIdle()
}

func TestAdopt_leavesTheMountsOfOthersAlone(t *testing.T) {
	w := newWorld(t)
	foreign := filepath.Join(w.root, "pods", "somebody", "x")
	if err := os.MkdirAll(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("foreign", foreign, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(foreign, 0) })
	w.adopt()
	if unknown, err := w.manager.Unadopted(); err != nil || len(unknown) != 1 || unknown[0] != foreign {
		t.Errorf("unknown mounts: %v, %v", unknown, err)
	}
	w.calls()
}

func TestAdopt_removesEmptyDirectoriesOfPodsThatAreGone(t *testing.T) {
	w := newWorld(t)
	empty, full := filepath.Join(w.root, "pods", "gone", "volumes", "x"), filepath.Join(w.root, "pods", "data")
	for _, directory := range []string{empty, full} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.adopt()
	if _, err := os.Stat(filepath.Join(w.root, "pods", "gone")); !os.IsNotExist(err) {
		t.Errorf("the empty directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(full, "file")); err != nil {
		t.Error(err)
	}
}

func TestAdopt_recordsAgainWhatTheStoreCanTell(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	p := pod("web", "a")
	w.mount(p)
	w.put(func(tx *store.Tx) error {
		uses, err := tx.Uses().All()
		if err != nil {
			return err
		}
		return tx.Uses().Delete(uses[0].Name)
	})
	w.restart("boot-1", "")
	w.adopt()
	w.unmount(p)
	if _, inUse := w.driver.Left(); len(inUse) > 1 {
		t.Errorf("in use: %v", inUse)
	}
	if unknown, err := w.manager.Unadopted(); err != nil || len(unknown) > 0 {
		t.Errorf("still mounted: %v, %v", unknown, err)
	}
}

// A thousand mounted volumes are taken over, and their pods find them in place,
// within two seconds and without a call.
func TestAdopt_aThousandVolumesAreQuick(t *testing.T) {
	w, _ := newServing(t)
	w.object(ephemeral)
	var pods []*corev1.Pod
	w.put(func(tx *store.Tx) error {
		for i := range 1000 {
			p := inline(fmt.Sprintf("p%d", i), "scratch")
			use := inlineUse(p, &p.Spec.Volumes[0])
			path := w.manager.target(p.UID, use)
			if err := errors.Join(os.MkdirAll(path, 0o755), unix.Mount("holdfast-test", path, "tmpfs", 0, "size=64k")); err != nil {
				return err
			}
			use.BootID = "boot-1"
			use.Targets = map[string]store.Target{path: {Phase: store.PhaseDone, PodUID: p.UID, Pod: store.KeyOf(p), VolumeName: "scratch", Device: deviceAt(path)}}
			if err := errors.Join(tx.Uses().Put(use.Name, use), tx.Pods().Put(store.KeyOf(p), p)); err != nil {
				return err
			}
			pods = append(pods, p)
		}
		return nil
	})
	// The quickest of some starts: it takes a tenth of a second on a machine that
	// does nothing else.
	took := time.Hour
	for range 5 {
		start := time.Now()
		w.serving("boot-1", "")
		adopted := time.Since(start)
		for _, p := range pods {
			w.mount(p)
		}
		took = min(took, time.Since(start))
		t.Logf("adopted in %s, in place in %s", adopted, time.Since(start))
	}
	if took > 2*time.Second {
		t.Errorf("took %s", took)
	}
	w.calls()
}
