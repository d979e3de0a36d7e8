package store

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// contentsOf reads the content of every record, by table and key.
func contentsOf(t testing.TB, s *Store) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := s.View(func(tx *Tx) error {
		for _, name := range buckets() {
			if name == metaBucket {
				continue
			}
			if err := tx.each(name, func(key string, content []byte) error {
				found[fmt.Sprintf("%s %q", name, key)] = string(content)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// busy makes a store of records that come, change and go, with a backup on the way.
func busy(t *testing.T, random *rand.Rand, schema int) (root string, before, after map[string]string) {
	t.Helper()
	root = t.TempDir()
	s := open(t, root)
	after = contentsOf(t, s)
	for i := range 60 {
		name := fmt.Sprintf("c%02d", random.IntN(25))
		err := s.Update(func(tx *Tx) error {
			if random.IntN(5) == 0 {
				return errors.Join(tx.Claims().Delete("default/"+name), tx.Uses().Delete(name))
			}
			meta := metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{"a": strings.Repeat(fmt.Sprint(i), random.IntN(400))}}
			return errors.Join(
				tx.Claims().Put("default/"+name, &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: ""}}),
				tx.Uses().Put(name, &VolumeUse{Name: name, Driver: "d", Handle: fmt.Sprint(i)}))
		})
		if err != nil {
			t.Fatal(err)
		}
		if now := contentsOf(t, s); !maps.Equal(now, after) { // else no transaction was written
			before, after = after, now
		}
		if i == 40 {
			if err := s.Backup(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if schema < checksummed {
		s.takeChecksums(t, schema)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return root, before, after
}

// takeChecksums makes the file one of an earlier schema.
func (s *Store) takeChecksums(t *testing.T, schema int) {
	t.Helper()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			bucket, plain := tx.Bucket([]byte(name)), map[string][]byte{}
			if name == metaBucket {
				if err := errors.Join(bucket.Delete([]byte(sumsKey)), bucket.Put([]byte(schemaKey), []byte(fmt.Sprint(schema)))); err != nil {
					return err
				}
				continue
			}
			_ = bucket.ForEach(func(key, stored []byte) error { // the function never fails
				plain[string(key)] = append([]byte{}, contentOf(stored)...)
				return nil
			})
			for key, content := range plain {
				if err := bucket.Put([]byte(key), content); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	damageSeed  = flag.Uint64("damage.seed", 7, "of the random damage to a store")
	damageStore = flag.String("damage.store", "",
		"the undamaged `file` of a failed run: bbolt orders the pages of a new one differently")
)

// undamaged makes a store, or copies that of a failed run. before and after are its
// records before and after the last transaction.
func undamaged(t *testing.T) (root string, whole []byte, before, after map[string]string) {
	t.Helper()
	root, before, after = busy(t, rand.New(rand.NewPCG(*damageSeed, 9)), Schema)
	path := filepath.Join(root, FileName)
	if *damageStore != "" {
		data, err := os.ReadFile(*damageStore)
		if err := errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		kept := filepath.Join(os.TempDir(), fmt.Sprintf("undamaged-%d.db", os.Getpid()))
		if err := os.WriteFile(kept, whole, 0o600); err != nil {
			t.Error(err)
		}
		t.Logf("repeat with -damage.seed=%d -damage.store=%s", *damageSeed, kept)
	})
	return root, whole, before, after
}

// damaged changes some bytes anywhere, or in the header and the first entry of a page.
func damaged(random *rand.Rand, whole []byte) (data []byte, at, length int) {
	data = slices.Clone(whole)
	at, length = random.IntN(len(data)), 1+random.IntN(1<<random.IntN(6))
	if random.IntN(2) == 0 {
		at, length = at/os.Getpagesize()*os.Getpagesize()+random.IntN(32), 1
	}
	for i := at; i < min(at+length, len(data)); i++ {
		data[i] ^= byte(1 + random.IntN(255))
	}
	if random.IntN(2) == 0 {
		data[at] = whole[at] - 1 // a number that is plausible
	}
	return data, at, length
}

// Bytes change at random, anywhere in the file: the store is refused, and check and
// repair name the damage; or every record is intact. A damaged meta page alone loses
// one change, as after a power loss.
func TestChecksum_noChangedByteIsServed(t *testing.T) {
	root, whole, before, after := undamaged(t)
	random := rand.New(rand.NewPCG(*damageSeed, 10))
	refused, named := 0, 0
	for round := range 700 {
		data, at, length := damaged(random, whole)
		where := fmt.Sprintf("round %d: %d bytes from %d", round, length, at)
		path := filepath.Join(root, FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(root)
		if err == nil {
			got := contentsOf(t, s)
			if !maps.Equal(got, after) && (at >= 2*os.Getpagesize() || !maps.Equal(got, before)) {
				t.Errorf("%s: the store is opened with other records", where)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v", where, err)
		}
		refused++
		if report, err := Check(root); err == nil && len(report.Problems) == 0 {
			t.Errorf("%s: check finds no problem in a store that is refused", where)
		}
		named += repairedAsTold(t, root, where, after)
	}
	t.Logf("%d of 700 were refused, %d of these repairs named a record", refused, named)
	if refused < 40 || named < 10 {
		t.Errorf("%d were refused, %d repairs named a record: this test shows too little", refused, named)
	}
}

// repairedAsTold repairs, and checks that every record is intact or named as lost. It
// returns 1 if one is named.
func repairedAsTold(t *testing.T, root, where string, want map[string]string) int {
	t.Helper()
	repaired, err := Repair(root, time.Now())
	if err != nil {
		return 0 // no record can be read; the file is unchanged
	}
	if err := os.Remove(repaired.Kept); err != nil {
		t.Fatal(err)
	}
	if repaired.Unread != "" {
		if err := os.RemoveAll(repaired.Unread); err != nil {
			t.Fatal(err)
		}
	}
	named, general := map[string]bool{}, len(repaired.Lost) > 0
	for _, problem := range slices.Concat(repaired.Lost, repaired.Unsure) {
		named[problem.Where] = true
	}
	s, err := Open(root)
	if err != nil {
		t.Errorf("%s: after the repair: %v", where, err)
		return 0
	}
	got := contentsOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for record, content := range got {
		if content != want[record] && !named[record] {
			t.Errorf("%s: after the repair, %s is another one, and is not named", where, record)
		}
	}
	for record := range want {
		if _, ok := got[record]; !ok && !named[record] && !general {
			t.Errorf("%s: after the repair, %s is missing, and not reported as lost", where, record)
		}
	}
	for record := range named {
		if strings.Contains(record, `"`) {
			return 1
		}
	}
	return 0
}

// A record that changed to another valid one is taken from the backup, and named.
func TestRepair_takesADamagedRecordFromTheBackup(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	err := s.Update(func(tx *Tx) error {
		return tx.Claims().Put("default/c", &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-12345"},
		})
	})
	if err := errors.Join(err, s.Backup(), s.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), "pvc-12345", "pvc-12349")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `persistentvolumeclaims "default/c"`) {
		t.Fatalf("got %v", err)
	}
	repaired, err := Repair(root, time.Now())
	if err != nil || len(repaired.Unsure) != 1 || !strings.Contains(repaired.Unsure[0].String(), "from the backup") {
		t.Fatalf("got %+v, %v", repaired, err)
	}
	if err := open(t, root).View(func(tx *Tx) error {
		claim, err := tx.Claims().Get("default/c")
		if err == nil && claim.Spec.VolumeName != "pvc-12345" {
			t.Errorf("its volume is %s", claim.Spec.VolumeName)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Files of earlier schemas get their checksums at the first start, after a copy.
func TestOpen_addsChecksumsToAnEarlierSchema(t *testing.T) {
	for _, schema := range []int{1, 2} {
		root, _, want := busy(t, rand.New(rand.NewPCG(3, 4)), schema)
		report, err := Check(root)
		if err != nil || len(report.Problems) > 0 || report.Schema != schema {
			t.Fatalf("before: %+v, %v", report, err)
		}
		s := open(t, root)
		if got := contentsOf(t, s); !maps.Equal(got, want) {
			t.Errorf("schema %d: the records changed", schema)
		}
		if err := errors.Join(s.Backup(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if report, err = Check(root); err != nil || len(report.Problems) > 0 || report.Schema != Schema {
			t.Errorf("after: %+v, %v", report, err)
		}
		copied := filepath.Join(root, fmt.Sprintf("%s.schema%d", FileName, schema))
		if _, err := Restore(root, copied, Options{}, time.Now()); err != nil {
			t.Error(err)
		}
		if got := contentsOf(t, open(t, root)); !maps.Equal(got, want) {
			t.Errorf("schema %d: the records of the copy are others", schema)
		}
	}
}
