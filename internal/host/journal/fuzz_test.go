package journal

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// FuzzRecords opens a journal with any records in any of its buckets, as after damage or
// by another program. It is read, or replaced by an empty one, and takes entries then.
func FuzzRecords(f *testing.F) {
	event, err := json.Marshal(Entry{Sequence: 1, ID: "a", Event: &Event{About: Ref{Kind: "Pod", Key: "a/b"}, Reason: "Mounted", Count: 1, First: time.Unix(1, 0), Last: time.Unix(2, 0)}})
	if err != nil {
		f.Fatal(err)
	}
	step, err := json.Marshal(Entry{Sequence: 2, ID: "b", Step: &StepEntry{About: []Ref{{Kind: "Pod", Key: "a/b"}}, Step: "stage", Status: Retrying, Attempts: 3}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(0), sequenceKey(1), event)
	f.Add(uint8(0), sequenceKey(2), step)
	f.Add(uint8(0), sequenceKey(1<<64-1), []byte(`{"sequence":18446744073709551615,"event":{"about":{}}}`))
	f.Add(uint8(0), []byte("short"), event)
	f.Add(uint8(1), []byte("identity"), sequenceKey(7))
	f.Add(uint8(2), []byte("Pod\x00a/b\x00"), []byte{})
	f.Add(uint8(2), aboutKey(Ref{Kind: "Pod", Key: "a/b"}, 9), []byte("x"))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, bucket uint8, key, value []byte) {
		if len(key) == 0 || len(key) > bbolt.MaxKeySize {
			return
		}
		path := filepath.Join(root, FileName)
		defer func() { _, _ = os.Remove(path), os.Remove(path+".damaged") }()
		plant(t, path, []string{entryBucket, identityBucket, aboutBucket}[bucket%3], key, value)
		fuzztest.Cost{Bytes: 32 << 20}.Within(t, len(key)+len(value), func() { useJournal(t, root) })
	})
}

func plant(t *testing.T, path, bucket string, key, value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put(key, value)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// useJournal reads everything, writes over it, and finds what it wrote.
func useJournal(t *testing.T, root string) {
	t.Helper()
	j, err := Open(root, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pod := Ref{Kind: "Pod", Key: "a/b"}
	_, _ = j.Of(pod.Kind, pod.Key) // damage that only reading shows is an error, and the journal is replaced
	j.Record(Notice{About: pod, Reason: "Fuzzed", Message: "is recorded"})
	j.Step(StepEntry{About: []Ref{pod}, Step: "stage", Status: Done})
	story, err := j.Of(pod.Kind, pod.Key)
	if err != nil || len(story.Events) == 0 || len(story.Steps) == 0 {
		t.Errorf("after a write the story is %+v, %v", story, err)
	}
	if _, _, err := j.After(0); err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
