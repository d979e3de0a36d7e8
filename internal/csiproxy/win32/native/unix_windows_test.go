package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// effectMissing skips a test whose effect this system only claims or does not
// have. It is listed, and proves nothing.
func effectMissing(t *testing.T, what string, err error) {
	t.Helper()
	t.Skipf("effect missing here: %s: %v", what, err)
}

// unixPath is where wine keeps a path of drive C on the system below.
func unixPath(t *testing.T, path string) string {
	t.Helper()
	prefix := os.Getenv("WINEPREFIX")
	rest, ok := strings.CutPrefix(path, `C:\`)
	if prefix == "" || !ok {
		t.Fatalf("%s is in no prefix of wine (%q)", path, prefix)
	}
	return prefix + "/drive_c/" + strings.ReplaceAll(rest, `\`, "/")
}

// unix runs a program of the system below wine, which cannot be waited for: done
// reports when it has had its effect.
func unix(t *testing.T, done func() bool, program string, args ...string) {
	t.Helper()
	process, err := os.StartProcess(`Z:`+strings.ReplaceAll(program, "/", `\`), append([]string{program}, args...),
		&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	_ = process.Release()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s %q had no effect", program, args)
		}
	}
}

// isLink asks as a user would.
func isLink(path string) bool {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return false
	}
	attributes, err := windows.GetFileAttributes(name)
	return err == nil && attributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0
}

// plantLink makes a link to a directory without the tested code: with
// Windows' own means, or from the system below wine, which has no other.
func plantLink(t *testing.T, target, link string) {
	t.Helper()
	if !win32.UnderWine() {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		return
	}
	unix(t, func() bool { return isLink(link) }, "/bin/ln", "-s", unixPath(t, target), unixPath(t, link))
	t.Cleanup(func() { // wine's own removal would act on the target
		unix(t, func() bool { return !isLink(link) }, "/bin/rm", "-f", unixPath(t, link))
	})
}

func TestPlantLink_makesWhatWindowsCallsALink(t *testing.T) {
	dir := winetest.Dir(t)
	target := filepath.Join(dir, "target")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	plantLink(t, target, filepath.Join(dir, "link"))
	if !isLink(filepath.Join(dir, "link")) || isLink(target) {
		t.Error("the link is none, or its target is one")
	}
}
