package host

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// The records can prove a password. They are for administrators only; other files
// below C:\ProgramData are readable by all users. wine reports other rights than it
// was given and enforces none, so there the test only uses the directory.
func TestRecords_areForAdministratorsOnly(t *testing.T) {
	dir := filepath.Join(winetest.Dir(t), "holdfast", "csi-proxy")
	for _, time := range []string{"made", "found"} {
		if open, err := makeRecordDir(dir); open != nil || err != nil {
			t.Fatalf("%s: %v, %v", time, open, err)
		}
		for _, path := range []string{dir, filepath.Dir(dir)} {
			descriptor, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
			mustDo(t, err)
			rights := descriptor.String()
			if !win32.UnderWine() &&
				(!strings.HasPrefix(rights, "D:P") || strings.Count(rights, "(") != 2 || !strings.Contains(rights, ";SY)") ||
					!strings.Contains(rights, ";BA)")) {
				t.Errorf("%s: %s has %s", time, path, rights)
			}
		}
	}
	r, err := newRecords(dir, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	mustDo(t, r.write("smb-1", smbRecord{Share: "s"}))
	var got smbRecord
	if found, err := r.read("smb-1", &got); !found || err != nil || got.Share != "s" {
		t.Error(found, err, got)
	}
}
