package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
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

// repaired opens a damaged store, which is refused, and repairs it.
func repaired(t *testing.T, data []byte) (*Repaired, map[string]string) {
	t.Helper()
	root := writeDamaged(t, data)
	if _, err := Open(root); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a host opens it: %v", err)
	}
	result, err := Repair(root, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	got := contentsOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return result, got
}

// The records of a table whose name changed are kept: they say where they belong.
func TestRepair_reportsADamagedNameOfATable(t *testing.T) {
	root, _, want := busy(t, rand.New(rand.NewPCG(1, 2)), Schema)
	whole, err := os.ReadFile(filepath.Join(root, FileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{useBucket, claimBucket} {
		other := name[:len(name)-1] + "z"
		data := strings.ReplaceAll(string(whole), name, other)
		data = strings.ReplaceAll(data, strconv.Quote(other), strconv.Quote(name)) // in the sums
		result, got := repaired(t, []byte(data))
		if !maps.Equal(got, want) {
			t.Errorf("%s: %d records of %d", name, len(got), len(want))
		}
		if len(result.Lost) == 0 || !strings.Contains(result.Lost[0].String(), other) {
			t.Errorf("%s: the report is %v", name, result.Lost)
		}
	}
}

// entryPages lists the offsets of the pages with entries, also those that are free.
func entryPages(data []byte) (found []int) {
	const branch, leaf = 1, 2
	for at := 2 * os.Getpagesize(); at < len(data); at += os.Getpagesize() {
		id, flags := binary.NativeEndian.Uint64(data[at:]), binary.NativeEndian.Uint16(data[at+8:])
		if id == uint64(at/os.Getpagesize()) && (flags == branch || flags == leaf) && binary.NativeEndian.Uint16(data[at+10:]) > 0 {
			found = append(found, at)
		}
	}
	return found
}

// The header of a page counts fewer entries than the page has, or more: all are kept.
// If it counts none, the table is reported.
func TestRepair_reportsADamagedCountOfEntries(t *testing.T) {
	root, _, want := busy(t, rand.New(rand.NewPCG(1, 2)), Schema)
	whole, err := os.ReadFile(filepath.Join(root, FileName))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, at := range entryPages(whole) {
		count := binary.NativeEndian.Uint16(whole[at+10:])
		for _, changed := range []uint16{count - 1, count + 1, 0} {
			data := bytes.Clone(whole)
			binary.NativeEndian.PutUint16(data[at+10:], changed)
			if s, err := Open(writeDamaged(t, data)); err == nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				continue // the page is free
			}
			refused++
			where := fmt.Sprintf("page %d counts %d of %d entries", at/os.Getpagesize(), changed, count)
			if changed == 0 {
				repairedAsTold(t, writeDamaged(t, data), where, want)
				continue
			}
			result, got := repaired(t, data)
			if !maps.Equal(got, want) || len(result.Lost) == 0 {
				t.Errorf("%s: the new store has %d records of %d; the report is %v", where, len(got), len(want), result.Lost)
			}
		}
	}
	if refused < 12 {
		t.Errorf("%d stores were refused: this test shows too little", refused)
	}
}

// The flag that makes an entry of the top a table is lost: the records are kept.
func TestRepair_reportsATableThatIsMarkedAsARecord(t *testing.T) {
	root, _, want := busy(t, rand.New(rand.NewPCG(1, 2)), Schema)
	whole, err := os.ReadFile(filepath.Join(root, FileName))
	if err != nil {
		t.Fatal(err)
	}
	for entry := range len(buckets()) {
		data := bytes.Clone(whole)
		for _, at := range entryPages(whole) {
			if int(binary.NativeEndian.Uint16(whole[at+10:])) == len(buckets()) && binary.NativeEndian.Uint32(whole[at+16:]) == 1 {
				binary.NativeEndian.PutUint32(data[at+16+16*entry:], 0)
			}
		}
		result, got := repaired(t, data)
		if !maps.Equal(got, want) || len(result.Lost) == 0 {
			t.Errorf("entry %d: the new store has %d records of %d; the report is %v", entry, len(got), len(want), result.Lost)
		}
	}
}

// The sums of the tables show what is missing. Without them, the report cannot claim
// to be complete.
func TestRepair_withoutSumsIsNotComplete(t *testing.T) {
	root, _, want := busy(t, rand.New(rand.NewPCG(1, 2)), Schema)
	whole, err := os.ReadFile(filepath.Join(root, FileName))
	if err != nil {
		t.Fatal(err)
	}
	result, got := repaired(t, bytes.ReplaceAll(whole, []byte(`{"Version":`), []byte(`{"Versiom":`)))
	if !maps.Equal(got, want) || len(result.Lost) != 1 || !strings.Contains(result.Lost[0].String(), "sums") {
		t.Errorf("%d records of %d; the report is %v", len(got), len(want), result.Lost)
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
