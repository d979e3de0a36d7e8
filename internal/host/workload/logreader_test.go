package workload

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// A container may write so much that its log is put aside twice between two
// inspections of the reader: it reads what still exists.
func TestReadLog_readsAFileRotatedMeanwhile(t *testing.T) {
	shim := Shim{State: t.TempDir(), Logs: t.TempDir()}
	root, err := os.OpenRoot(shim.State)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := inside.WriteState(root, State{Phase: Running}); err != nil {
		t.Fatal(err)
	}
	current, aside := shim.LogFile(0)
	write := func(text string) {
		t.Helper()
		line := time.Now().UTC().Format(time.RFC3339Nano) + " stdout F " + text + "\n"
		if err := os.WriteFile(current+".new", []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(current+".new", current); err != nil {
			t.Fatal(err)
		}
	}
	putAside := func() {
		t.Helper()
		if err := os.Rename(current, aside); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	said, err := shim.ReadLog(t.Context(), 0, LogOptions{Tail: -1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	lines := bufio.NewReader(said)
	wants := func(text string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); err != nil || line != text+"\n" {
			t.Errorf("%q, %v; want %s", line, err, text)
		}
	}
	wants("one")
	putAside()
	write("two")
	putAside()
	write("three")
	wants("two")
	wants("three")
	putAside()
	write("four")
	wants("four")
	if entries, err := filepath.Glob(filepath.Join(shim.Logs, "*")); err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

func TestReadLog_selectsByTimeAndShowsIt(t *testing.T) {
	shim := Shim{State: t.TempDir(), Logs: t.TempDir()}
	current, _ := shim.LogFile(0)
	const log = "2026-01-02T03:04:05.9Z stdout F one\n2026-01-02T03:04:05.91Z stderr P tw\n2026-01-02T03:04:06Z stderr F o\n2026-01-02T03:04:06.5Z stdout F \n"
	if err := os.WriteFile(current, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 905e6, time.UTC)
	for want, o := range map[string]LogOptions{
		"one\ntwo\n\n": {Tail: -1},
		"two\n\n":      {Tail: -1, Since: since},
		"\n":           {Tail: 1, Since: since},
		"2026-01-02T03:04:05.9Z one\n2026-01-02T03:04:05.91Z two\n2026-01-02T03:04:06.5Z \n": {Tail: -1, Timestamps: true},
		"": {Tail: -1, Since: since.Add(time.Hour)},
	} {
		reader, err := shim.ReadLog(t.Context(), 0, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(reader)
		if err := errors.Join(err, reader.Close()); err != nil || string(got) != want {
			t.Errorf("%+v: %q, %v; want %q", o, got, err, want)
		}
	}
}
