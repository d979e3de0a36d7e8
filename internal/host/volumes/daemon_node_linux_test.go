package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serving makes the manager one of a host that continues serving, as after a start
// in a boot, and returns the events that it records.
func (w *world) serving(boot, terms string) *[]journal.Notice {
	w.t.Helper()
	w.restart(boot, terms)
	options := w.manager.options
	options.NodeName = "here"
	notices := &[]journal.Notice{}
	options.Record = func(n journal.Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*notices = append(*notices, n)
	}
	w.manager = New(options)
	w.adopt()
	return notices
}

// create stores a pod, as apply does.
func (w *world) create(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	w.put(func(tx *store.Tx) error { return tx.Pods().Put(store.KeyOf(p), p) })
	return p
}

// object stores the CSIDriver of the driver.
func (w *world) object(change func(*storagev1.CSIDriverSpec)) {
	w.t.Helper()
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.example"}}
	change(&object.Spec)
	w.put(func(tx *store.Tx) error { return tx.Drivers().Put(object.Name, object) })
}

// undoLeftovers does the work of the controller of leftovers.
func (w *world) undoLeftovers() error {
	var failed error
	for range 3 {
		var keys []string
		if err := w.store.View(func(tx *store.Tx) (err error) {
			keys, err = leftoverKeys(tx)
			return err
		}); err != nil {
			w.t.Fatal(err)
		}
		failed = nil
		for _, key := range keys {
			_, err := w.manager.leftoverController().Do(context.Background(), key)
			failed = errors.Join(failed, err)
		}
		if failed == nil && len(keys) == 0 {
			return nil
		}
	}
	return failed
}

func (w *world) uses() (all []*store.VolumeUse) {
	w.t.Helper()
	if err := w.store.View(func(tx *store.Tx) (err error) {
		all, err = tx.Uses().All()
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func TestLeftovers_aPodThatIsGoneLosesItsVolumes(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	w.serving("boot-1", "")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.put(func(tx *store.Tx) error { return tx.Pods().Delete(store.KeyOf(p)) })
	w.serving("boot-1", "")
	if err := w.undoLeftovers(); err != nil {
		t.Fatal(err)
	}
	if uses := w.uses(); len(uses) > 0 {
		t.Errorf("%d uses are left", len(uses))
	}
	if _, inUse := w.driver.Left(); len(inUse) > 0 {
		t.Errorf("in use: %v", inUse)
	}
}

// A pod whose processes the host still ends keeps its volumes until then.
func TestLeftovers_aPodThatStillRunsKeepsItsVolumes(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	w.serving("boot-1", "")
	p := w.create(pod("web", "a"))
	w.mount(p)
	record := w.manager.options.Paths.PodRecord(p.UID)
	if err := errors.Join(os.MkdirAll(filepath.Dir(record), 0o755), os.WriteFile(record, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.put(func(tx *store.Tx) error { return tx.Pods().Delete(store.KeyOf(p)) })
	_ = w.undoLeftovers() // it retries
	if n := w.driver.Count("NodeUnpublishVolume"); n != 0 {
		t.Errorf("unpublished %d times", n)
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if err := w.undoLeftovers(); err != nil || len(w.uses()) != 0 {
		t.Errorf("%v, %d uses", err, len(w.uses()))
	}
}

// What needs a driver that is away waits; the volumes of others come off.
func TestLeftovers_onlyThoseOfAnAbsentDriverWait(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	w.serving("boot-1", "")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.put(func(tx *store.Tx) error {
		gone := &store.VolumeUse{Name: "other", Driver: "absent.example", Handle: "v", BootID: "boot-1", Label: "claim x/y", Stage: store.PhaseDone, StagingPath: w.root + "/none"}
		return errors.Join(tx.Pods().Delete(store.KeyOf(p)), tx.Uses().Put(gone.Name, gone))
	})
	if err := w.undoLeftovers(); err == nil {
		t.Error("the volume of the absent driver does not wait")
	}
	if uses := w.uses(); len(uses) != 1 || uses[0].Name != "other" {
		t.Errorf("uses %v", uses)
	}
}

func TestMountPod_aMountedVolumeCostsNothing(t *testing.T) {
	w := newWorld(t)
	w.ensured("a")
	w.serving("boot-1", "")
	p := w.create(pod("web", "a"))
	w.mount(p)
	before := len(w.driver.Calls())
	version := w.version()
	for range 3 {
		w.mount(p)
	}
	if calls := w.driver.Calls()[before:]; len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
	if now := w.version(); now != version {
		t.Errorf("objects were written: version %d, before %d", now, version)
	}
	w.unmount(p)
	w.isIdle()
}

func (w *world) version() (version uint64) {
	w.t.Helper()
	if err := w.store.View(func(tx *store.Tx) error { version = tx.Version(); return nil }); err != nil {
		w.t.Fatal(err)
	}
	return version
}
