package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
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

// A loss of power brings a name back that was removed, but not what was in it.
func TestRecords_stayForgottenAfterALossOfPower(t *testing.T) {
	r, err := newRecords(winetest.Dir(t), slog.New(slog.DiscardHandler))
	mustDo(t, err)
	mustDo(t, r.write("format-x", begunFormat{Volume: "x"}))
	kept := filepath.Join(r.dir, "kept")
	err = os.Link(r.path("format-x"), kept)
	if !win32.UnderWine() {
		mustDo(t, err)
	}
	if err != nil {
		t.Skipf("without a second name for the file its content cannot be read: %v", err)
	}
	mustDo(t, r.remove("format-x"))
	mustDo(t, os.Rename(kept, r.path("format-x")))
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
