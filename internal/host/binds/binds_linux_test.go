package binds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// newBind makes a directory for records, a mounted volume, and a target.
func newBind(t *testing.T) (records, source, target string) {
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
	ok, err := mountinfo.Mounted(path)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestMake_comesBackAfterAReboot(t *testing.T) {
	records, source, target := newBind(t)
	desired := []Bind{{Source: source, Target: target, ReadOnly: true}}
	for _, boot := range []string{"one", "one", "two"} { // the second time it is there
		if boot == "two" {
			if err := unix.Unmount(target, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := Make(records, boot, desired); err != nil {
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
func TestRemove_unmountsOnlyItsOwnMounts(t *testing.T) {
	records, source, target := newBind(t)
	if err := Make(records, "one", []Bind{{Source: source, Target: target}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	err := Make(records, "one", []Bind{{Source: source, Target: target}})
	if err == nil || !strings.Contains(err.Error(), "something is mounted there already") {
		t.Errorf("over another program's mount: %v", err)
	}
	if err := Remove(records, "one"); err != nil || !isMounted(t, target) {
		t.Errorf("another program's mount is gone, or %v", err)
	}
}

// flagsOf are the flags of the mount at a path (statfs(2)).
func flagsOf(t *testing.T, path string) int64 {
	t.Helper()
	var ok unix.Statfs_t
	if err := unix.Statfs(path, &ok); err != nil {
		t.Fatal(err)
	}
	return ok.Flags
}

func TestMake_readOnlyKeepsTheOtherFlagsOfTheVolume(t *testing.T) {
	records, source, target := newBind(t)
	if err := unix.Mount("", source, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	if err := Make(records, "one", []Bind{{Source: source, Target: target, ReadOnly: true}}); err != nil {
		t.Fatal(err)
	}
	const desired = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	if flags := flagsOf(t, target); flags&desired != desired {
		t.Errorf("its flags are %#x, without %#x", flags, desired&^flags)
	}
	if err := Remove(records, "one"); err != nil {
		t.Error(err)
	}
}

// A host that was killed between the steps of an older version left it writable.
func TestMake_makesAnExistingBindReadOnly(t *testing.T) {
	records, source, target := newBind(t)
	if err := Make(records, "one", []Bind{{Source: source, Target: target}}); err != nil {
		t.Fatal(err)
	}
	if err := Make(records, "one", []Bind{{Source: source, Target: target, ReadOnly: true}}); err != nil {
		t.Fatal(err)
	}
	if flagsOf(t, target)&unix.ST_RDONLY == 0 {
		t.Error("it is not read-only")
	}
	if flagsOf(t, source)&unix.ST_RDONLY != 0 {
		t.Error("the volume itself is read-only")
	}
}

func TestRemove_keepsTheRecordOfAMountBelowAnother(t *testing.T) {
	records, source, target := newBind(t)
	if err := Make(records, "one", []Bind{{Source: source, Target: target}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	if err := Remove(records, "one"); err == nil || !strings.Contains(err.Error(), "unmount "+target+": something else is mounted over it (tmpfs, tmpfs): unmount that first") {
		t.Errorf("with a mount over it: %v", err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	if err := Remove(records, "one"); err != nil || isMounted(t, target) {
		t.Errorf("it is not taken away: %v", err)
	}
}

// A user who may write above the target leads it elsewhere, between any two
// inspects it.
func TestMake_bindsTheDirectoryThatItChecked(t *testing.T) {
	records, source, target := newBind(t)
	base := filepath.Dir(target)
	own, elsewhere, link := filepath.Join(base, "own"), filepath.Join(base, "elsewhere"), filepath.Join(base, "link")
	for _, directory := range []string{filepath.Join(own, "d"), filepath.Join(elsewhere, "d")} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default: // own is now the directory and now the link
				_ = unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	wrong := 0
	for range 300 {
		_ = Make(records, "one", []Bind{{Source: source, Target: filepath.Join(own, "d")}}) // it may be refused
		if isMounted(t, filepath.Join(elsewhere, "d")) {
			wrong++
		}
		for _, directory := range []string{own, elsewhere, link} {
			_ = unix.Unmount(filepath.Join(directory, "d"), unix.MNT_DETACH)
		}
	}
	close(done)
	<-ended
	for _, directory := range []string{own, elsewhere, link} {
		_ = unix.Unmount(filepath.Join(directory, "d"), unix.MNT_DETACH)
	}
	if wrong > 0 {
		t.Errorf("of 300, %d were mounted where a link leads", wrong)
	}
}
