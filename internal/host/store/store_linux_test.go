package store

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func open(t *testing.T, root string) *Store {
	t.Helper()
	store, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func TestStore_keepsObjects(t *testing.T) {
	root := t.TempDir()
	use := &VolumeUse{
		Name: "kubernetes.io/csi/d^v", Driver: "d", Handle: "v", Stage: PhaseDone, BootID: "boot",
		Targets: map[string]Target{"/t": {Phase: PhaseDoing, PodUID: "uid", Pod: "ns/p"}}, Trouble: Trouble{Attempts: 2, LastError: "x"},
	}
	first := open(t, root)
	err := first.Update(func(tx *Tx) error { return tx.Uses().Put(use.Name, use) })
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	err = open(t, root).View(func(tx *Tx) error {
		got, err := tx.Uses().Get(use.Name)
		if difference := cmp.Diff(use, got); difference != "" {
			t.Error(difference)
		}
		all, listError := tx.Uses().All()
		if len(all) != 1 {
			t.Errorf("%d uses", len(all))
		}
		return errors.Join(err, listError)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStore_absentIsNil(t *testing.T) {
	err := open(t, t.TempDir()).Update(func(tx *Tx) error {
		pod, err := tx.Pods().Get("ns/p")
		if pod != nil {
			t.Error("there is a pod")
		}
		return errors.Join(err, tx.Pods().Delete("ns/p"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStore_changesAllOrNothing(t *testing.T) {
	store := open(t, t.TempDir())
	failure := errors.New("stop here")
	err := store.Update(func(tx *Tx) error {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		return errors.Join(tx.Claims().Put("ns/c", claim), failure)
	})
	if !errors.Is(err, failure) {
		t.Fatal(err)
	}
	if err := store.View(func(tx *Tx) error {
		claims, err := tx.Claims().All()
		if len(claims) != 0 {
			t.Error("half of a change was kept")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_isForOneProcess(t *testing.T) {
	root := t.TempDir()
	open(t, root)
	_, err := Open(root)
	want := filepath.Join(root, "host.db") + ": in use by another process (process " + strconv.Itoa(os.Getpid()) + "): wait until it ends"
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestOpen_leavesTheStoreOfANewerProgramAlone(t *testing.T) {
	root := t.TempDir()
	store := open(t, root)
	if err := store.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(metaBucket)).Put([]byte(schemaKey), []byte("99"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); err == nil || !strings.Contains(err.Error(), "has schema 99; this program knows 3") {
		t.Fatalf("got %v", err)
	}
}

func TestOpen_saysThatAFileIsDamaged(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, FileName), []byte(strings.Repeat("no store\n", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Fatalf("got %v", err)
	}
}

func TestTable_saysWhichRecordIsDamaged(t *testing.T) {
	store := open(t, t.TempDir())
	if err := store.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(podBucket)).Put([]byte("ns/p"), []byte("{"))
	}); err != nil {
		t.Fatal(err)
	}
	err := store.View(func(tx *Tx) error {
		_, err := tx.Pods().All()
		return err
	})
	if err == nil || !strings.Contains(err.Error(), `pods "ns/p" is damaged`) {
		t.Fatalf("got %v", err)
	}
}

func TestVolumeUse_idle(t *testing.T) {
	for _, c := range []struct {
		use  VolumeUse
		idle bool
	}{
		{VolumeUse{}, true},
		{VolumeUse{Stage: PhaseUndoing}, false},
		{VolumeUse{Attach: PhaseDone}, false},
		{VolumeUse{Targets: map[string]Target{"/t": {}}}, false},
	} {
		if got := c.use.Idle(); got != c.idle {
			t.Errorf("%+v: %v", c.use, got)
		}
	}
}
