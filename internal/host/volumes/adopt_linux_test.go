package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func (w *world) adopt() {
	w.t.Helper()
	if err := w.manager.Adopt(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func TestAdopt_keepsMountsWithoutACall(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	p := pod("web", "a")
	target := w.mount(p)["data"].Path
	before := len(w.driver.Calls())
	w.restart("boot-1", "")
	w.adopt()
	if again := w.mount(p)["data"].Path; again != target {
		t.Errorf("mounted at %s, before at %s", again, target)
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
	target := w.mount(p)["data"].Path
	if err := unix.Unmount(target, 0); err != nil {
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
	foreign := filepath.Join(w.root, "pods", "unknown", "x")
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

// What a lost record said of the steps before the mount is not known: they are
// undone with it, on the node that the driver knew.
func TestAdopt_recordsAgainAMountThatTheStoreCanIdentify(t *testing.T) {
	for name, lost := range map[string]func(*store.Tx) error{
		"the record": func(*store.Tx) error { return nil },
		"the record and the VolumeAttachment": func(tx *store.Tx) error {
			return tx.Attachments().Delete(claim.AttachmentName("id-pvc-uid-a", "d.example", "here"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := newServing(t, attaching)
			w.ensured("a")
			p := w.create(pod("web", "a"))
			w.mount(p)
			w.put(func(tx *store.Tx) error {
				uses, err := tx.Uses().All()
				if err != nil {
					return err
				}
				return errors.Join(tx.Uses().Delete(uses[0].Name), lost(tx))
			})
			w.serving("boot-1", "")
			w.unmount(p)
			if _, inUse := w.driver.Left(); len(inUse) > 0 {
				t.Errorf("in use: %v", inUse)
			}
			if request := one[*csi.ControllerUnpublishVolumeRequest](t, a); request.GetNodeId() != "node-1" {
				t.Errorf("detached from %q", request.GetNodeId())
			}
			if left := w.attachments(); len(left) > 0 {
				t.Errorf("attachments %v", left)
			}
			if unknown, err := w.manager.Unadopted(); err != nil || len(unknown) > 0 {
				t.Errorf("still mounted: %v, %v", unknown, err)
			}
		})
	}
}

// A pod that continues with a volume whose record was lost has all of its steps
// done again.
func TestAdopt_aPodContinuesWithAVolumeWhoseRecordWasLost(t *testing.T) {
	w, a := newServing(t, attaching)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.put(func(tx *store.Tx) error {
		uses, err := tx.Uses().All()
		if err != nil {
			return err
		}
		return errors.Join(tx.Uses().Delete(uses[0].Name), tx.Attachments().Delete(uses[0].Attachment))
	})
	w.serving("boot-1", "")
	w.driver.Publish = func(*csi.NodePublishVolumeRequest) error { return nil } // it is there
	w.mount(p)
	published := requests[*csi.NodePublishVolumeRequest](a)
	if again := published[len(published)-1]; again.GetStagingTargetPath() == "" || len(again.GetPublishContext()) != len(published[0].GetPublishContext()) {
		t.Errorf("published again with %v", again)
	}
	if attached := requests[*csi.ControllerPublishVolumeRequest](a); len(attached) != 2 || attached[1].GetNodeId() != "node-1" {
		t.Errorf("attached with %v", attached)
	}
	w.unmount(p)
	w.isIdle()
}

// A thousand mounted volumes are adopted within two seconds and without a call.
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
			use.Targets = map[string]store.Target{path: {Phase: store.PhaseDone, PodUID: p.UID, Pod: store.KeyOf(p), VolumeName: "scratch", Device: w.manager.deviceAt(path)}}
			if err := errors.Join(tx.Uses().Put(use.Name, use), tx.Pods().Put(store.KeyOf(p), p)); err != nil {
				return err
			}
			pods = append(pods, p)
		}
		return nil
	})
	// The quickest of some starts. It takes a tenth of a second on an idle machine.
	took := time.Hour
	for range 5 {
		start := time.Now()
		w.serving("boot-1", "")
		adopted := time.Since(start)
		for _, p := range pods {
			w.mount(p)
		}
		took = min(took, time.Since(start))
		t.Logf("adopted in %s, mounted in %s", adopted, time.Since(start))
	}
	if took > 2*time.Second {
		t.Errorf("took %s", took)
	}
	w.calls()
}
