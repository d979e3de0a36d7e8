package binds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// places are a directory for records, a volume that is mounted, and a target.
func places(t *testing.T) (records, source, target string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test")
	}
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"records", "source", "target"} {
		if err := os.Mkdir(filepath.Join(directory, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	source, target = filepath.Join(directory, "source"), filepath.Join(directory, "target")
	if err := unix.Mount("tmpfs", source, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(target, unix.MNT_DETACH) // of a test that failed
		if err := unix.Unmount(source, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(directory, "records"), source, target
}

func isMounted(t *testing.T, path string) bool {
	t.Helper()
	is, err := mountinfo.Mounted(path)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func TestPlace_comesBackAfterAReboot(t *testing.T) {
	records, source, target := places(t)
	wanted := []Bind{{Source: source, Target: target, ReadOnly: true}}
	for _, boot := range []string{"one", "one", "two"} { // the second time it is there
		if boot == "two" {
			if err := unix.Unmount(target, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := Place(records, boot, wanted); err != nil {
			t.Fatalf("boot %s: %v", boot, err)
		}
		if !isMounted(t, target) {
			t.Errorf("boot %s: it is not bound", boot)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o600); err == nil {
		t.Error("it is not read-only")
	}
	if err := os.WriteFile(filepath.Join(source, "file"), nil, 0o600); err != nil {
		t.Errorf("the volume itself has become read-only: %v", err)
	}
	if err := Remove(records, "two"); err != nil || isMounted(t, target) {
		t.Errorf("it is not taken away: %v", err)
	}
	if err := Remove(records, "two"); err != nil {
		t.Error(err)
	}
}

// Intent comes before effect: a crash between leaves a record without a mount.
func TestRemove_takesAwayOnlyWhatWasBound(t *testing.T) {
	records, source, target := places(t)
	if err := Place(records, "one", []Bind{{Source: source, Target: target}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	err := Place(records, "one", []Bind{{Source: source, Target: target}})
	if err == nil || !strings.Contains(err.Error(), "something is mounted there already") {
		t.Errorf("over somebody else's mount: %v", err)
	}
	if err := Remove(records, "one"); err != nil || !isMounted(t, target) {
		t.Errorf("somebody else's mount is gone, or %v", err)
	}
}
