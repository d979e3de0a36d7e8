package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Every page above the records is lost: the records are not.
func TestRepair_keepsTheRecordsBelowLostPages(t *testing.T) {
	data := filled(t)
	const branch = 1
	for at := 2 * 4096; at < len(data); at += 4096 {
		if binary.NativeEndian.Uint64(data[at:]) == uint64(at/4096) && binary.NativeEndian.Uint16(data[at+8:]) == branch {
			clear(data[at : at+4096])
		}
	}
	root := writeDamaged(t, data)
	if _, err := Open(root); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a host opens it: %v", err)
	}
	repaired, err := Repair(root, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if repaired.Records[claimBucket] != recordsOfDamaged || repaired.Records[useBucket] != recordsOfDamaged || len(repaired.Unsure) > 0 {
		t.Errorf("it has %v of %d each, %d of them unsure", repaired.Records, recordsOfDamaged, len(repaired.Unsure))
	}
	if len(repaired.Lost) == 0 {
		t.Error("it says nothing of lost pages")
	}
}

// What was changed last wins, and that it may not have been the last is said.
func TestRepair_withoutMetaPagesTakesTheNewestVersions(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for i := range 50 {
		err := s.Update(func(tx *Tx) error {
			return tx.Claims().Put("default/c", &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "c", Annotations: map[string]string{"round": fmt.Sprint(i), "much": strings.Repeat("x", 3000)},
			}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	clear(data[:2*4096])
	root = writeDamaged(t, data)
	repaired, err := Repair(root, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(repaired.Unsure) == 0 {
		t.Error("the report claims to be complete")
	}
	err = open(t, root).Update(func(tx *Tx) error {
		claim, err := tx.Claims().Get("default/c")
		if err != nil || claim == nil || claim.Annotations["round"] != "49" {
			t.Errorf("got %v, %v", claim, err)
			return err
		}
		before := claim.ResourceVersion
		claim.Annotations["round"] = "50"
		if err := tx.Claims().Put("default/c", claim); err != nil {
			return err
		}
		if len(claim.ResourceVersion) < len(before) || claim.ResourceVersion <= before {
			t.Errorf("version %s comes after %s", claim.ResourceVersion, before)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRepair_ofNothingChangesNothing(t *testing.T) {
	root := writeDamaged(t, []byte(strings.Repeat("no store", 4096)))
	if _, err := Repair(root, time.Now()); err == nil || !strings.Contains(err.Error(), BackupName) {
		t.Errorf("got %v; want where a copy is", err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRepair_refusesAStoreInUse(t *testing.T) {
	root := t.TempDir()
	open(t, root)
	if _, err := Repair(root, time.Now()); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
}

func writeDamaged(t *testing.T, data []byte) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.WriteFile(filepath.Join(root, FileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// Of a thousand volumes with their claims, pods and uses, starting reads every page.
func TestOpen_ofAThousandVolumesIsQuick(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	err := s.Update(func(tx *Tx) error {
		for i := range 1000 {
			name := fmt.Sprintf("c%04d", i)
			meta := metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{"a": strings.Repeat(name, 250)}}
			err := errors.Join(
				tx.Claims().Put("default/"+name, &corev1.PersistentVolumeClaim{ObjectMeta: meta}),
				tx.Volumes().Put(name, &corev1.PersistentVolume{ObjectMeta: meta}),
				tx.Pods().Put("default/"+name, &corev1.Pod{ObjectMeta: meta}),
				tx.Uses().Put(name, &VolumeUse{Name: name, Driver: "d", Handle: strings.Repeat(name, 200)}))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	// The quickest of some starts: on an idle machine it takes a fiftieth of that.
	took := time.Hour
	for range 10 {
		start := time.Now()
		again := open(t, root)
		took = min(took, time.Since(start))
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d KiB in %v", info.Size()>>10, took)
	if took > 300*time.Millisecond {
		t.Errorf("opening takes %v", took)
	}
}
