package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const recordsOfDamaged = 300

// filled makes a store with claims, uses and a Secret, and gives its bytes.
func filled(t *testing.T) []byte {
	t.Helper()
	root := t.TempDir()
	s := open(t, root)
	for i := range recordsOfDamaged {
		name := fmt.Sprintf("c%03d", i)
		err := s.Update(func(tx *Tx) error {
			return errors.Join(
				tx.Claims().Put("default/"+name, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
					Name: name, Namespace: "default", Annotations: map[string]string{"a": strings.Repeat(name, 20)},
				}}),
				tx.Uses().Put(name, &VolumeUse{Name: name, Driver: "d", Handle: name}))
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
	return data
}

// After any damage to the file, the store opens with all records or reports the damage;
// the process does not crash, and a repair reports the records that it loses.
func TestDamage_isNeverSilent(t *testing.T) {
	whole := filled(t)
	random := rand.New(rand.NewPCG(1, 2))
	found, kept := 0, 0
	for i := range 150 {
		data := append([]byte(nil), whole...)
		switch i % 4 {
		case 0: // a block of zeros, as after a lost write
			at := random.IntN(len(data)/4096) * 4096
			clear(data[at : at+4096])
		case 1: // one byte
			data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
		case 2: // truncated
			data = data[:random.IntN(len(data))]
		case 3: // a block of something else
			at := random.IntN(len(data)/512) * 512
			for j := range 512 {
				data[at+j] = byte(random.Uint32())
			}
		}
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		damaged := tryDamaged(t, root, i)
		if damaged {
			found++
			if repairDamaged(t, root, i) {
				kept++
			}
		}
	}
	if found < 30 || kept == 0 {
		t.Errorf("%d of 150 were damaged, %d of them could be repaired: this test shows nothing", found, kept)
	}
	t.Logf("%d of 150 were damaged, %d of them gave something back", found, kept)
}

// tryDamaged opens the file as a host does.
func tryDamaged(t *testing.T, root string, i int) bool {
	t.Helper()
	s, err := Open(root)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%d: %v; want an error that says damaged", i, err)
		}
		return true
	}
	defer func() { _ = s.Close() }()
	var claims, uses int
	err = s.View(func(tx *Tx) error {
		all, err := tx.Claims().All()
		claims = len(all)
		if err != nil {
			return err
		}
		used, err := tx.Uses().All()
		uses = len(used)
		return err
	})
	if err != nil {
		return true // a record says that it is damaged
	}
	// The last commit may be lost with its meta page: bbolt goes back to the one
	// before, which is consistent.
	if claims < recordsOfDamaged-1 || uses < recordsOfDamaged-1 {
		t.Errorf("%d: the store opened with %d claims and %d uses of %d", i, claims, uses, recordsOfDamaged)
	}
	return false
}

func repairDamaged(t *testing.T, root string, i int) bool {
	t.Helper()
	before, err := os.ReadFile(filepath.Join(root, FileName))
	if err != nil {
		t.Fatal(err)
	}
	report, err := Check(root)
	if err == nil && len(report.Problems) == 0 {
		t.Errorf("%d: a store that does not open has no problem", i)
	}
	repaired, err := Repair(root, time.Now())
	if err != nil {
		if after, _ := os.ReadFile(filepath.Join(root, FileName)); string(after) != string(before) {
			t.Errorf("%d: a repair that failed changed the file", i)
		}
		return false
	}
	if after, _ := os.ReadFile(repaired.Kept); string(after) != string(before) {
		t.Errorf("%d: the damaged file was not kept", i)
	}
	s, err := Open(root)
	if err != nil {
		t.Errorf("%d: after the repair: %v", i, err)
		return false
	}
	defer func() { _ = s.Close() }()
	lost := 2*(recordsOfDamaged-1) - repaired.Records[claimBucket] - repaired.Records[useBucket]
	if lost > 0 && len(repaired.Lost) == 0 {
		t.Errorf("%d: %d records are lost without a report", i, lost)
	}
	return len(repaired.Records) > 0
}

func TestCheck_namesDanglingReferences(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	err := s.Update(func(tx *Tx) error {
		return tx.Claims().Put("default/c", &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(root); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is open: %v; want that it is in use", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].String(), "pv-1") || report.Records[claimBucket] != 1 {
		t.Errorf("got %+v", report)
	}
}

// Schema 1 is what `holdfast run` wrote before there was a daemon.
func TestOpen_migratesAStoreOfOneShotRuns(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		return errors.Join(
			tx.Bucket([]byte(claimBucket)).Put([]byte("default/c"), []byte(`{"metadata":{"name":"c","namespace":"default"},"spec":{"resources":{}},"status":{}}`)),
			meta.Put([]byte(schemaKey), []byte("1")), meta.Delete([]byte(sumsKey)))
	})
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, root)
	err = s.View(func(tx *Tx) error {
		claim, err := tx.Claims().Get("default/c")
		if err == nil && (claim.Kind != "PersistentVolumeClaim" || claim.ResourceVersion != "1") {
			t.Errorf("got %+v", claim)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Path() + ".schema1"); err != nil {
		t.Errorf("no copy was kept: %v", err)
	}
}
