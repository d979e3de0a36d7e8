package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// written is a file after random transactions, and its content by bucket.
func written(t testing.TB, random *rand.Rand, options bbolt.Options, transactions int) ([]byte, map[string]map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &options)
	if err != nil {
		t.Fatal(err)
	}
	db.NoSync = true
	content := map[string]map[string]string{}
	for range transactions {
		if err := db.Update(func(tx *bbolt.Tx) error { return change(tx, random, content) }); err != nil {
			t.Fatal(err)
		}
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for problem := range tx.Check() {
			t.Errorf("bbolt: %v", problem)
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data, content
}

// change makes random changes: buckets, one within another, small and large values,
// deletions.
func change(tx *bbolt.Tx, random *rand.Rand, content map[string]map[string]string) error {
	name := fmt.Sprintf("bucket%d", random.IntN(6))
	bucket, err := tx.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	if content[name] == nil {
		content[name] = map[string]string{}
	}
	for range random.IntN(60) {
		key := fmt.Sprintf("key%03d", random.IntN(400))
		if random.IntN(3) == 0 {
			delete(content[name], key)
			if err := bucket.Delete([]byte(key)); err != nil {
				return err
			}
			continue
		}
		value := strings.Repeat(key, random.IntN(30))
		if random.IntN(40) == 0 {
			value = strings.Repeat(key, 2000)
		}
		content[name][key] = value
		if err := bucket.Put([]byte(key), []byte(value)); err != nil {
			return err
		}
	}
	within, err := bucket.CreateBucketIfNotExists([]byte("within"))
	if err != nil {
		return err
	}
	if _, err := within.NextSequence(); err != nil {
		return err
	}
	if random.IntN(10) == 0 {
		delete(content, name)
		return tx.DeleteBucket([]byte(name))
	}
	return within.Put(fmt.Appendf(nil, "%d", random.IntN(300)), bytes.Repeat([]byte{1}, random.IntN(100)))
}

func variants() []bbolt.Options {
	return []bbolt.Options{
		{}, {FreelistType: bbolt.FreelistMapType}, {NoFreelistSync: true}, {PageSize: 1024}, {PageSize: 16384},
	}
}

func TestCheck_acceptsFilesOfBbolt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, options := range variants() {
		for _, transactions := range []int{0, 1, 3, 30, 150} {
			data, content := written(t, random, options, transactions)
			if err := Check(bytes.NewReader(data), int64(len(data))); err != nil {
				t.Errorf("%+v, %d transactions: %v", options, transactions, err)
			}
			left := Salvage(bytes.NewReader(data), int64(len(data)))
			if len(left.Problems) > 0 {
				t.Errorf("%+v, %d transactions: %v", options, transactions, left.Problems)
			}
			compare(t, left, content, true)
		}
	}
}

// compare finds records that differ from the written ones, or, if complete is required,
// are missing.
func compare(t *testing.T, left *Salvaged, content map[string]map[string]string, all bool) (found int) {
	t.Helper()
	reached := map[string]bool{}
	for _, record := range left.Records {
		if record.Standing != Reached {
			continue
		}
		if want, ok := content[record.Bucket][string(record.Key)]; ok && want == string(record.Value) {
			reached[record.Bucket+"/"+string(record.Key)] = true
		} else if all {
			t.Fatalf("%s/%s differs from the written one", record.Bucket, record.Key)
		}
	}
	want := 0
	for _, records := range content {
		want += len(records)
	}
	if all && len(reached) != want {
		t.Fatalf("%d records of %d", len(reached), want)
	}
	return len(reached)
}

// Each damage to a file is reported. A file without a report must also pass bbolt,
// which faults over damage.
func TestCheck_isAsStrictAsBbolt(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	fine := 0
	for _, options := range variants() {
		data, _ := written(t, random, options, 60)
		for range 150 {
			broken := damage(random, data)
			if Check(bytes.NewReader(broken), int64(len(broken))) != nil {
				continue
			}
			fine++
			// bbolt's Check reads the headers of both meta pages, which its other
			// code does not read and the next commits overwrite.
			for _, at := range []int{0, max(options.PageSize, 1024)} {
				if options.PageSize == 0 {
					at *= 4
				}
				if at+headerSize <= len(broken) {
					copy(broken[at:], data[at:at+headerSize])
				}
			}
			path := filepath.Join(t.TempDir(), "db")
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			if len(broken) == 0 {
				continue
			}
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
			if err != nil {
				t.Errorf("bbolt does not open it: %v", err)
				continue
			}
			err = db.View(func(tx *bbolt.Tx) error {
				for problem := range tx.Check() {
					t.Errorf("only bbolt says: %v", problem)
				}
				return nil
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d of %d show no damage", fine, 150*len(variants()))
}

func damage(random *rand.Rand, data []byte) []byte {
	data = bytes.Clone(data)
	switch random.IntN(5) {
	case 0: // a bit
		data[random.IntN(len(data))] ^= 1 << random.IntN(8)
	case 1: // a number of a header
		data[random.IntN(len(data)/1024)*1024+random.IntN(64)] ^= byte(1 + random.IntN(255))
	case 2: // a lost write
		at := random.IntN(len(data)/512) * 512
		clear(data[at : at+512])
	case 3: // a misdirected write
		from, to := random.IntN(len(data)/4096)*4096, random.IntN(len(data)/4096)*4096
		copy(data[to:to+4096], data[from:from+4096])
	case 4:
		data = data[:random.IntN(len(data))]
	}
	return data
}

func TestSalvage_findsTheLeavesOfALostBranch(t *testing.T) {
	data, content := written(t, rand.New(rand.NewPCG(3, 1)), bbolt.Options{PageSize: 4096}, 200)
	f, err := open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for id := uint64(2); id < f.metas[0].pages; id++ {
		if p, err := f.read(id, f.metas[0].pages); err == nil && p.flags == branchFlag {
			clear(data[id*4096 : (id+1)*4096])
		}
	}
	if err := Check(bytes.NewReader(data), int64(len(data))); err == nil {
		t.Fatal("missing branches are not reported")
	}
	left := Salvage(bytes.NewReader(data), int64(len(data)))
	got := map[string]bool{}
	for _, record := range left.Records {
		if record.Standing <= Loose {
			got[string(record.Key)+"="+string(record.Value)] = true
		}
	}
	for name, records := range content {
		for key, value := range records {
			if !got[key+"="+value] {
				t.Errorf("%s/%s is lost", name, key)
			}
		}
	}
}

// A branch that refers to a page that is free in the last transaction does not make
// the old records of that page current ones.
func TestSalvage_aReferenceToAFreePageIsOfAnEarlierTime(t *testing.T) {
	data, content := written(t, rand.New(rand.NewPCG(3, 1)), bbolt.Options{PageSize: 4096}, 200)
	f, err := open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	m := f.metas[0]
	ids, _, err := f.free(m)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for id := uint64(2); id < m.pages; id++ {
		p, err := f.read(id, m.pages)
		if err != nil || p.flags != branchFlag || slices.Contains(ids, id) {
			continue
		}
		for _, other := range ids {
			if free, err := f.read(other, m.pages); err != nil || free.flags != leafFlag {
				continue
			}
			changed := bytes.Clone(data)
			binary.NativeEndian.PutUint64(changed[id*4096+headerSize+8:], other)
			salvaged := Salvage(bytes.NewReader(changed), int64(len(changed)))
			if len(salvaged.Problems) == 0 {
				t.Errorf("page %d refers to page %d: no problem is reported", id, other)
			}
			for _, record := range salvaged.Records {
				if want, ok := content[record.Bucket][string(record.Key)]; record.Standing == Reached && (!ok || want != string(record.Value)) {
					t.Fatalf("page %d refers to page %d: %s/%s is not of the last transaction", id, other, record.Bucket, record.Key)
				}
			}
			tried++
		}
	}
	if tried == 0 {
		t.Error("the file has no branch or no free leaf")
	}
}

func TestSalvage_withoutMetaPagesEverythingIsUnsure(t *testing.T) {
	data, content := written(t, rand.New(rand.NewPCG(4, 1)), bbolt.Options{PageSize: 4096}, 50)
	clear(data[:2*4096])
	left := Salvage(bytes.NewReader(data), int64(len(data)))
	got := map[string]bool{}
	for _, record := range left.Records {
		if record.Standing != Unsure {
			t.Fatalf("%q has the standing %d", record.Key, record.Standing)
		}
		got[string(record.Key)+"="+string(record.Value)] = true
	}
	for name, records := range content {
		for key, value := range records {
			if !got[key+"="+value] {
				t.Errorf("%s/%s is lost", name, key)
			}
		}
	}
}

// FuzzFile changes a file anywhere, and sometimes mends the sums of its meta pages, to
// reach the checks behind them.
func FuzzFile(f *testing.F) {
	data, _ := written(f, rand.New(rand.NewPCG(5, 1)), bbolt.Options{PageSize: 1024}, 12)
	f.Add([]byte{}, uint32(0), uint16(0))
	for i := range uint32(12) {
		f.Add([]byte{255, 255, 255, 255, 0, 1}, i*1024, uint16(4))
	}
	f.Fuzz(func(_ *testing.T, change []byte, at uint32, step uint16) {
		broken := bytes.Clone(data)
		for i, b := range change {
			broken[(uint64(at)+uint64(i)*uint64(step+1))%uint64(len(broken))] = b
		}
		for _, bytesOf := range [][]byte{broken, mended(broken), change, broken[:uint64(at)%uint64(len(broken))]} {
			reader := bytes.NewReader(bytesOf)
			_ = Check(reader, int64(len(bytesOf))) // either is right: it must not panic
			_ = Salvage(reader, int64(len(bytesOf)))
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	data, _ := written(b, rand.New(rand.NewPCG(6, 1)), bbolt.Options{}, 1500)
	path := filepath.Join(b.TempDir(), "db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := Check(file, int64(len(data))); err != nil {
			b.Fatal(err)
		}
	}
}
