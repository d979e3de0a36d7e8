package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// FuzzRecords opens a store with any record in any table, under the right checksum, as
// another program could have written it. Reading, replacing and deleting it, checking and
// repairing the file end with an answer or an error.
func FuzzRecords(f *testing.F) {
	tables := buckets()[1:] // not meta, whose values have no records of users
	for i, name := range tables {
		f.Add(uint8(i), "shop/a", []byte(`{"metadata":{"name":"a","namespace":"shop"}}`))
		if IsSealed(Kind{Resource: name}) {
			f.Add(uint8(i), "shop/a", []byte(`{"metadata":{"name":"a","namespace":"shop"},"sealed":"AAAA"}`))
			f.Add(uint8(i), "shop/a", []byte(`{"metadata":{"name":"a","namespace":"shop"},"sealed":[]}`))
		}
	}
	f.Add(uint8(10), "a", []byte(`{"metadata":null,"spec":{"csi":null}}`))
	f.Add(uint8(12), "a", []byte(`null`))
	use, err := json.Marshal(&VolumeUse{Name: "d^v", Driver: "d", Handle: "v", Targets: map[string]Target{"/t": {Phase: PhaseDoing}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(1), "d^v", use)
	fresh := freshStore(f)
	f.Fuzz(func(t *testing.T, table uint8, key string, content []byte) {
		if key == "" || len(key) > 1024 {
			return
		}
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, FileName), fresh, 0o600); err != nil {
			t.Fatal(err)
		}
		fuzztest.Cost{Bytes: 64 << 20}.Within(t, len(key)+len(content), func() {
			useStore(t, root, tables[int(table)%len(tables)], key, content)
		})
	})
}

// freshStore is the file of a new store.
func freshStore(f *testing.F) []byte {
	f.Helper()
	root := f.TempDir()
	made, err := Open(root)
	if err != nil {
		f.Fatal(err)
	}
	if err := made.Close(); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, FileName))
	if err != nil {
		f.Fatal(err)
	}
	return data
}

func useStore(t *testing.T, root, table, key string, content []byte) {
	t.Helper()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(tx *Tx) error { return tx.put(table, key, content) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Check(root)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	if s, err = Open(root); err != nil {
		t.Fatalf("a record that has its checksum: %v", err)
	}
	readTables(s)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if err := s.Update(func(tx *Tx) error { return tx.Namespaces().Put("other", other) }); err != nil {
		t.Errorf("another record: %v", err)
	}
	if kind, known := KindOf(table); known {
		_ = s.Update(func(tx *Tx) error { return tx.Objects(kind).Put(key, named(kind, key)) })
	}
	if err := s.Backup(); err != nil && len(report.Problems) == 0 {
		t.Errorf("backup: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Repair(root, time.Unix(1, 0)); err != nil {
		t.Errorf("repair: %v", err)
	}
	if s, err = Open(root); err != nil {
		t.Fatalf("the repaired store: %v", err)
	}
	readTables(s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// named is an object of a kind that has the name and the namespace of a key.
func named(kind Kind, key string) Object {
	object := kind.New()
	namespace, name, both := strings.Cut(key, "/")
	if !both {
		namespace, name = "", key
	}
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// readTables reads all tables; any of them may have a record that does not decode.
func readTables(s *Store) {
	_ = s.View(func(tx *Tx) error {
		for _, kind := range Kinds() {
			_, _ = tx.Objects(kind).All()
		}
		_, _ = tx.Uses().All()
		_, _ = tx.Provisionings().All()
		_ = tx.HoldsNothing()
		return nil
	})
}
