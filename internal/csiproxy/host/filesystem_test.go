package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// Every operation that takes a path checks it before it does anything.
func TestEveryOperation_refusesABadPathBeforeItCallsWindows(t *testing.T) {
	w := newWorld(t)
	for name, operation := range operations(w.api) {
		for _, path := range badPaths {
			stop := w.Record()
			err := operation(path)
			if calls := stop(); !errors.Is(err, backend.ErrInvalid) || len(calls) > 0 {
				t.Errorf("%s of %q: %v, after %d calls", name, path, err, len(calls))
			}
		}
	}
}

// The root itself is never a target.
func TestChanges_refuseTheRootItself(t *testing.T) {
	w := newWorld(t)
	fs := w.api.Filesystem
	before := w.tree(kubelet)
	for name, err := range map[string]error{
		"Rmdir":            fs.Rmdir(ctx(), kubelet, false),
		"Rmdir with force": fs.Rmdir(ctx(), kubelet+`\`, true),
		"RmdirContents":    fs.RmdirContents(ctx(), `c:\VAR\lib\kubelet`),
		"Link":             fs.Link(ctx(), plugins, kubelet),
		"Link to it":       fs.Link(ctx(), kubelet, pods+`\x`),
		"Mount":            w.api.Volumes.Mount(ctx(), someVolume, kubelet),
	} {
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustBe(t, fs.Mkdir(ctx(), kubelet), nil) // it exists
	if after := w.tree(kubelet); after != before {
		t.Errorf("the root became\n%s", after)
	}
}

func TestPathExists_doesNotFollowTheLastLink(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods + `\dir`)
	w.do(w.WriteFile(pods+`\file`, 1))
	w.do(w.Symlink(pods+`\dangling`, pods+`\nothing`, true))
	w.do(w.Symlink(pods+`\away`, outside, true))
	w.mount(plugins+`\mounted`, "one")
	for path, want := range map[string]bool{
		kubelet: true, pods: true, pods + `\dir`: true, pods + `\DIR`: true, pods + `\file`: true, pods + `\dangling`: true, pods + `\away`: true,
		plugins + `\mounted`: true, pods + `\nothing`: false, pods + `\no\such\way`: false, pods + `\file\below`: false,
	} {
		if got, err := w.api.Filesystem.PathExists(ctx(), path); err != nil || got != want {
			t.Errorf("%s exists: %t, %v", path, got, err)
		}
	}
	w.idle()
}

// The calls that drivers make most must not cost more than the one call of upstream.
func TestPathsThatArePlain_takeOneCall(t *testing.T) {
	w := newWorld(t)
	path := plugins + `\kubernetes.io\csi\d\hash\globalmount`
	fs := w.api.Filesystem
	exists := func(path string) error { _, err := fs.PathExists(ctx(), path); return err }
	for _, step := range []struct {
		name string
		do   func() error
		most int
	}{
		{"PathExists of nothing", func() error { return exists(path) }, 1},
		{"Mkdir with parents", func() error { return fs.Mkdir(ctx(), path) }, 14},
		{"PathExists", func() error { return exists(path) }, 1},
		{"Mkdir of a directory", func() error { return fs.Mkdir(ctx(), path) }, 1},
		{"Mkdir", func() error { return fs.Mkdir(ctx(), path+`\new`) }, 4}, // the look, the way, the change, the proof
		{"Rmdir", func() error { return fs.Rmdir(ctx(), path+`\new`, false) }, 4},
		{"Rmdir of nothing", func() error { return fs.Rmdir(ctx(), path+`\new`, true) }, 2},
	} {
		stop := w.Record()
		w.do(step.do())
		if calls := stop(); len(calls) > step.most {
			t.Errorf("%s takes %d calls: %v", step.name, len(calls), calls)
		}
	}
}

func TestMkdir_makesWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	path := plugins + `\a\b\c\d`
	for range 2 { // also when it exists
		mustBe(t, w.api.Filesystem.Mkdir(ctx(), path), nil)
	}
	if info, err := w.Lstat(path); err != nil || !info.IsDir() {
		t.Error(info, err)
	}
	w.idle()
}

func TestMkdir_takesAMountedFolderForADirectory(t *testing.T) {
	w := newWorld(t)
	w.mount(plugins+`\pv`, "one")
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), plugins+`\pv`), nil)
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), plugins+`\pv\on\it`), nil)
	if !w.Exists(plugins + `\pv\on\it`) {
		t.Error("nothing was made on the volume")
	}
	w.idle()
}

func TestMkdir_rejectsAFileOrALinkAtItsPath(t *testing.T) {
	w := newWorld(t)
	w.do(w.WriteFile(pods+`\file`, 1))
	w.do(w.Symlink(pods+`\link`, plugins, true))
	w.do(w.Junction(pods+`\junction`, plugins))
	for _, path := range []string{`\file`, `\file\below`, `\link`, `\junction`} {
		mustBe(t, w.api.Filesystem.Mkdir(ctx(), pods+path), backend.ErrExists)
	}
}

// A success of Windows that changed nothing is none.
func TestMkdir_believesNoFalseSuccess(t *testing.T) {
	w := newWorld(t)
	w.Inject(windows.Fault{Call: "Directory.Mkdir", Action: windows.Pretend})
	for _, path := range []string{pods + `\x`, pods + `\x\y`} {
		if err := w.api.Filesystem.Mkdir(ctx(), path); err == nil {
			t.Errorf("%s was not made, and no error says so", path)
		}
	}
}

func TestErrors_haveTheNumberOfWindowsAndItsMeaning(t *testing.T) {
	for number, want := range map[win32.Errno]error{
		win32.ErrorAccessDenied: backend.ErrDenied, win32.ErrorDiskFull: backend.ErrNoSpace, win32.ErrorSharingViolation: backend.ErrInUse,
		win32.ErrorWriteProtect: backend.ErrPrecondition,
	} {
		w := newWorld(t)
		w.Inject(windows.Fault{Call: "Directory.Mkdir", Action: windows.Fail, Errno: number})
		err := w.api.Filesystem.Mkdir(ctx(), pods+`\x`)
		if !errors.Is(err, want) || !errors.Is(err, number) || !strings.Contains(err.Error(), number.Error()) ||
			!strings.Contains(err.Error(), pods+`\x`) {
			t.Errorf("%v: %v", number, err)
		}
	}
}

func TestEveryOperation_endsWhenItsCallerLeaves(t *testing.T) {
	w := newWorld(t)
	hang := w.Inject(windows.Fault{Call: "Directory.Mkdir", Action: windows.Hang})
	defer hang.Remove()
	limited, cancel := context.WithCancel(ctx())
	done := make(chan error)
	go func() { done <- w.api.Filesystem.Mkdir(limited, pods+`\a\b`) }()
	cancel()
	mustBe(t, <-done, context.Canceled)
}

func TestRoots_areHeldFromTheStart(t *testing.T) {
	w := newWorld(t)
	if err := w.Rename(kubelet, `C:\var\lib\second`); err == nil {
		t.Error("the root was moved away while the host runs")
	}
	if err := w.Rename(`C:\var`, `C:\second`); err == nil {
		t.Error("what the root lies in was moved away while the host runs")
	}
}

func TestRoots_areOpenedOnceTheyExist(t *testing.T) {
	w := newWorld(t)
	w.host.Close()
	w.do(w.Rename(kubelet, `C:\var\lib\later`))
	w.start()
	_, err := w.api.Filesystem.PathExists(ctx(), pods)
	mustBe(t, err, backend.ErrUnavailable)
	if !strings.Contains(err.Error(), kubelet) {
		t.Error(err)
	}
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\x`, true), backend.ErrUnavailable)
	w.do(w.Rename(`C:\var\lib\later`, kubelet))
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), pods+`\x`), nil)
}

func TestClose_closesTheRootsOnceUnused(t *testing.T) {
	w := newWorld(t)
	hang := w.Inject(windows.Fault{Call: "Directory.Mkdir", Action: windows.Hang})
	done := make(chan error)
	go func() { done <- w.api.Filesystem.Mkdir(ctx(), pods+`\x`) }()
	for hang.Waiting() == 0 {
	}
	w.host.Close()
	w.host.Close()
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), pods+`\y`), backend.ErrUnavailable)
	hang.Release()
	mustBe(t, <-done, nil)
	if n := w.OpenHandles(); n != 0 {
		t.Errorf("%d handles are open", n)
	}
}
