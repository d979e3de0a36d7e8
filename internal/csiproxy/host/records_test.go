package host

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

func TestRecords_keepAndForget(t *testing.T) {
	for name, dir := range map[string]string{"on the disk": filepath.Join(winetest.Dir(t), "a", "b"), "in memory": ""} {
		t.Run(name, func(t *testing.T) {
			r, err := newRecords(dir, slog.New(slog.DiscardHandler))
			mustDo(t, err)
			var got smbRecord
			if found, err := r.read("smb-1", &got); found || err != nil {
				t.Error(found, err)
			}
			for _, holders := range [][]string{{"a"}, {"a", "b"}} {
				mustDo(t, r.write("smb-1", smbRecord{Share: "s", Holders: holders}))
			}
			if found, err := r.read("smb-1", &got); !found || err != nil || !slices.Equal(got.Holders, []string{"a", "b"}) {
				t.Error(found, err, got)
			}
			for range 2 {
				mustDo(t, r.remove("smb-1"))
			}
			if found, err := r.read("smb-1", &got); found || err != nil {
				t.Error(found, err)
			}
		})
	}
}

// A crash while a record is written leaves the old one and a temporary file, and
// a record that is damaged all the same allows nothing.
func TestRecords_surviveACrashWhileWriting(t *testing.T) {
	dir := winetest.Dir(t)
	r, err := newRecords(dir, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	mustDo(t, r.write("format-x", begunFormat{Volume: "old"}))
	mustDo(t, os.WriteFile(r.path("format-x")+recordTemp, []byte(`{"Volume":`), 0o600))
	var got begunFormat
	if found, err := r.read("format-x", &got); !found || err != nil || got.Volume != "old" {
		t.Error(found, err, got)
	}
	mustDo(t, r.write("format-x", begunFormat{Volume: "new"}))
	if found, err := r.read("format-x", &got); !found || err != nil || got.Volume != "new" {
		t.Error(found, err, got)
	}
	mustDo(t, os.WriteFile(r.path("format-x"), []byte(`{"Volume":`), 0o600))
	if found, err := r.read("format-x", &got); found || err != nil {
		t.Error(found, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
}

// A loss of power can bring the name of a removed record back. Its content is
// removed first, as a handle from before the removal shows.
func TestRecords_stayForgottenAfterALossOfPower(t *testing.T) {
	r, err := newRecords(winetest.Dir(t), slog.New(slog.DiscardHandler))
	mustDo(t, err)
	mustDo(t, r.write("format-x", begunFormat{Volume: "x"}))
	before, err := os.Open(r.path("format-x"))
	mustDo(t, err)
	removal := r.remove("format-x") // Windows does not remove a file that is open
	content, err := io.ReadAll(before)
	mustDo(t, err)
	mustDo(t, before.Close())
	if removal != nil {
		mustDo(t, r.remove("format-x"))
	}
	mustDo(t, os.WriteFile(r.path("format-x"), content, 0o600))
	var got begunFormat
	if found, err := r.read("format-x", &got); found || err != nil {
		t.Error(found, err, got)
	}
	mustDo(t, r.write("format-x", begunFormat{Volume: "y"}))
	if found, err := r.read("format-x", &got); !found || err != nil || got.Volume != "y" {
		t.Error(found, err, got)
	}
}

func TestNew_needsAStateDirectoryThatCanBe(t *testing.T) {
	file := filepath.Join(winetest.Dir(t), "file")
	mustDo(t, os.WriteFile(file, nil, 0o600))
	if _, err := newRecords(filepath.Join(file, "below"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a directory below a file")
	}
}
