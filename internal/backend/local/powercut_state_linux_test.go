package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/simulation/powercut"
)

// check opens the pool and compares it with what was acknowledged.
func (l *poolLab) check(t testing.TB, state powercut.State) {
	w := &world{
		TB: t, dir: l.poolDir(), name: l.facts.Operation, scenario: scenarios()[l.facts.Operation],
		before: l.facts.BeforeList, formats: l.facts.Formats,
	}
	t.Cleanup(w.shut)
	w.open(nil)
	wantAgreement(t.Context(), t, w.pool, "after the start")
	w.wantNothingHalf(l.facts.After)
	l.compare(t, factsOf(w), slices.Contains(state.Marks, acknowledged))
	if err := w.scenario.act(t.Context(), w.pool, guard.New(w.pool)); err != nil {
		t.Fatalf("the repeated call: %v", err)
	}
	w.wantEnd(l.facts.After)
	wantAgreement(t.Context(), t, w.pool, "after the repeated call")
	ended := factsOf(w)
	w.shut()
	w.open(nil)
	if diff := cmp.Diff(ended, factsOf(w)); diff != "" {
		t.Errorf("the second start changed the pool:\n%s", diff)
	}
}

// compare checks that each entry is as before the operation or as after it, and as
// after it if the operation was acknowledged.
func (l *poolLab) compare(t testing.TB, have map[string]string, isAcknowledged bool) {
	if isAcknowledged {
		if diff := cmp.Diff(l.facts.Acknowledged, have); diff != "" {
			t.Errorf("the acknowledged state was lost:\n%s", diff)
		}
		return
	}
	entries := maps.Clone(l.facts.Before)
	maps.Copy(entries, l.facts.Acknowledged)
	maps.Copy(entries, have)
	for entry := range entries {
		now := have[entry]
		if now == l.facts.Before[entry] || now == l.facts.Acknowledged[entry] || entry == poolFile || strings.HasPrefix(now, unfinished) {
			continue
		}
		if now == "" && strings.HasPrefix(l.facts.Before[entry], unfinished) {
			continue // it is replaced
		}
		t.Errorf("%s is\n%sand was, before the operation and after it,\n%sand\n%s",
			entry, now, l.facts.Before[entry], l.facts.Acknowledged[entry])
	}
}

// unfinished begins the facts of an entry that a repeated call continues.
const unfinished = "unfinished"

// factsOf describes the identity of the pool and each entry with all of its files.
func factsOf(w *world) map[string]string {
	w.Helper()
	facts := map[string]string{}
	if data, err := os.ReadFile(filepath.Join(w.dir, poolFile)); err == nil {
		facts[poolFile] = string(data)
	}
	for _, dir := range []string{volumesDir, snapshotsDir, groupsDir} {
		entries, err := os.ReadDir(filepath.Join(w.dir, dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the pool is not made yet
		}
		must(w.TB, err)
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			facts[path] = w.factsOfEntry(path)
		}
	}
	return facts
}

func (w *world) factsOfEntry(entry string) (facts string) {
	files, err := os.ReadDir(filepath.Join(w.dir, entry))
	must(w.TB, err)
	for _, file := range files {
		path := filepath.Join(w.dir, entry, file.Name())
		if file.Name() != dataFile {
			data, err := os.ReadFile(path)
			must(w.TB, err)
			facts += string(data)
			continue
		}
		facts += "data of " + w.sumOfData(path, entry) + "\n"
	}
	var record struct {
		State state      `json:"state"`
		Copy  *copyState `json:"copy"`
	}
	data, err := os.ReadFile(filepath.Join(w.dir, entry, recordFileOf(entry)))
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.Errorf("the record of %s: %v", entry, err)
	}
	if record.State == creating && record.Copy != nil {
		return unfinished + " " + facts
	}
	return facts
}

// sumOfData identifies the content of a data file; of a volume that was mounted only its
// size, since its filesystem writes at any time.
func (w *world) sumOfData(path, entry string) string {
	file, err := os.Open(path)
	must(w.TB, err)
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	must(w.TB, err)
	if w.formats && filepath.Base(entry) == idOf(volumePrefix, "one") {
		return fmt.Sprintf("%d bytes", info.Size())
	}
	sum := sha256.New()
	for at := int64(0); at < info.Size(); {
		begin, end, err := nextData(file, at, info.Size())
		must(w.TB, err)
		chunk := make([]byte, end-begin)
		_, err = io.ReadFull(io.NewSectionReader(file, begin, end-begin), chunk)
		must(w.TB, err)
		hashBlocks(sum, chunk, begin)
		at = max(end, begin)
	}
	return fmt.Sprintf("%d bytes, %x", info.Size(), sum.Sum(nil)[:8])
}

// hashBlocks adds the blocks that are not zero, with their offset: how much of a file is
// a hole says nothing of its content.
func hashBlocks(sum io.Writer, data []byte, offset int64) {
	const block = 4096
	var zeros [block]byte
	for at := 0; at < len(data); at += block {
		part := data[at:min(at+block, len(data))]
		if !bytes.Equal(part, zeros[:len(part)]) {
			_, _ = sum.Write(binary.AppendVarint(nil, offset+int64(at)))
			_, _ = sum.Write(part)
		}
	}
}
