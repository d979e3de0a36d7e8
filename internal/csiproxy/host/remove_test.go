package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

func TestRmdir_withoutForceTakesAnEmptyDirectoryOnly(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods+`\empty`, pods+`\full\x`)
	w.do(w.WriteFile(pods+`\file`, 1))
	rmdir := func(path string) error { return w.api.Filesystem.Rmdir(ctx(), path, false) }
	mustBe(t, rmdir(pods+`\empty`), nil)
	mustBe(t, rmdir(pods+`\empty`), backend.ErrNotFound)
	mustBe(t, rmdir(pods+`\no\way`), backend.ErrNotFound)
	mustBe(t, rmdir(pods+`\full`), backend.ErrPrecondition)
	mustBe(t, rmdir(pods+`\full`), win32.ErrorDirNotEmpty)
	mustBe(t, rmdir(pods+`\file`), backend.ErrPrecondition)
	w.idle()
}

func TestRmdir_withForceTakesTheWholeTree(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods+`\p\a\b\c`, pods+`\p\d`)
	w.do(w.WriteFile(pods+`\p\a\file`, 1))
	w.do(w.WriteFile(pods+`\file`, 1))
	for _, path := range []string{`\p`, `\p`, `\file`, `\no\way`} { // nothing is fine
		mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+path, true), nil)
		if w.Exists(pods + path) {
			t.Error(path, "is still there")
		}
	}
	w.idle()
}

// Reparse points of all kinds.
func TestRmdir_withForceEntersNoReparsePoint(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods+`\p\a`, pods+`\p\second`)
	volume := w.mount(pods+`\p\mounted`, "one")
	w.mkdir(pods + `\p\mounted\keep`)
	w.do(w.Symlink(pods+`\p\a\link`, outside, true))
	w.do(w.Symlink(pods+`\p\a\relative`, `..\..\..\..\..\..\precious`, true))
	w.do(w.Symlink(pods+`\p\a\file`, outside+`\data`, false))
	w.do(w.Symlink(pods+`\p\a\dangling`, pods+`\nothing`, true))
	w.do(w.Junction(pods+`\p\junction`, outside))
	w.do(w.SetReparse(pods+`\p\second`, win32.Reparse{Tag: win32.ReparseTagAFUnix}))
	before := w.tree(outside)
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true), nil)
	if after := w.tree(outside); after != before {
		t.Errorf("what the links led to is now\n%s", after)
	}
	if !w.Exists(volume + "keep") {
		t.Error("the content of the mounted volume is gone")
	}
	if w.Exists(pods + `\p`) {
		t.Error(w.tree(pods))
	}
	w.idle()
}

// With and without force.
func TestRmdir_unlinksALinkItself(t *testing.T) {
	for _, force := range []bool{false, true} {
		w := newWorld(t)
		w.do(w.Symlink(pods+`\link`, outside, true))
		w.do(w.Junction(pods+`\junction`, outside))
		w.do(w.Symlink(pods+`\dangling`, `C:\nothing`, true))
		before := w.tree(outside)
		for _, path := range []string{`\link`, `\junction`, `\dangling`} {
			mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+path, force), nil)
			if w.Exists(pods + path) {
				t.Errorf("%s is still there", path)
			}
		}
		if after := w.tree(outside); after != before {
			t.Errorf("what the links led to is now\n%s", after)
		}
	}
}

// Drivers unstage so, some without an unmount before.
func TestRmdir_takesAMountedFolderOffItsVolume(t *testing.T) {
	for _, force := range []bool{false, true} {
		w := newWorld(t)
		volume := w.mount(plugins+`\pv`, "one")
		w.mkdir(plugins + `\pv\keep`)
		stop := w.Record()
		mustBe(t, w.api.Filesystem.Rmdir(ctx(), plugins+`\pv`, force), nil)
		var steps []string
		for _, call := range stop() {
			if call.Changes || strings.HasSuffix(call.Name, "Flush") {
				steps = append(steps, call.Name)
			}
		}
		if got := strings.Join(steps, " "); got != "Device.Flush Volumes.DeleteMountPoint Directory.Remove" {
			t.Error(got)
		}
		if w.Exists(plugins + `\pv`) {
			t.Error("the folder is still there")
		}
		w.do(w.MkdirAll(plugins + `\again`))
		w.do(w.Calls().Volumes.SetMountPoint(plugins+`\again\`, volume))
		if !w.Exists(plugins + `\again\keep`) {
			t.Error("the content of the volume is gone")
		}
	}
}

func TestRmdir_keepsAMountWhoseWritesAreNotSafe(t *testing.T) {
	w := newWorld(t)
	w.mount(plugins+`\pv`, "one")
	w.Inject(windows.Fault{Call: "Device.Flush", Action: windows.Fail, Errno: win32.ErrorIODevice})
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), plugins+`\pv`, true), backend.ErrUnavailable)
	if link, err := w.Readlink(plugins + `\pv`); err != nil || !link.IsVolume() {
		t.Error(link, err)
	}
}

// A driver repeats what does not end. However often it does, the threads that hang
// in one volume leave enough for all others.
func TestRmdir_aHungVolumeBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.mount(plugins+`\pv`, "one")
		hung := w.Inject(windows.Fault{Call: "Device.Flush", Action: windows.Hang})
		for range 200 {
			limited, cancel := context.WithTimeout(t.Context(), time.Second)
			mustBe(t, w.api.Filesystem.Rmdir(limited, plugins+`\pv`, true), context.DeadlineExceeded)
			cancel()
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustBe(t, w.api.Filesystem.Mkdir(limited, pods+`\another\way`), nil)
		hung.Remove()
		synctest.Wait()
		mustBe(t, w.api.Filesystem.Rmdir(t.Context(), plugins+`\pv`, true), nil)
	})
}

// A removal continues when its caller has left. A mount at that path waits for it,
// and is not unlinked by it after it was answered.
func TestRmdir_isOverBeforeAMountAtItsPathBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		volume := w.mount(plugins+`\pv`, "one")
		hung := w.Inject(windows.Fault{Call: "Device.Flush", Action: windows.Hang})
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustBe(t, w.api.Filesystem.Rmdir(limited, plugins+`\pv`, true), context.DeadlineExceeded)
		mounted := make(chan error, 1)
		go func() {
			if err := w.api.Filesystem.Mkdir(t.Context(), plugins+`\pv`); err != nil {
				mounted <- err
				return
			}
			mounted <- w.api.Volumes.Mount(t.Context(), volume, plugins+`\pv`)
		}()
		time.Sleep(time.Second)
		select {
		case err := <-mounted:
			t.Fatalf("the mount did not wait: %v", err)
		default:
		}
		hung.Remove()
		err := <-mounted
		if link, unread := w.Readlink(plugins + `\pv`); err == nil && (unread != nil || !link.IsVolume()) {
			t.Errorf("it was answered, and is not mounted: %v, %v", link, unread)
		}
	})
}

// The disk was pulled while its volume was mounted.
func TestRmdir_takesAFolderOffAVolumeThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins + `\pv`)
	w.do(w.SetReparse(plugins+`\pv`, win32.NewMountPoint(someVolume)))
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), plugins+`\pv`, true), nil)
	if w.Exists(plugins + `\pv`) {
		t.Error("it is still there")
	}
}

func TestRmdir_removesAMountPointThatWindowsDoesNotTakeOff(t *testing.T) {
	w := newWorld(t)
	w.mount(plugins+`\pv`, "one")
	w.Inject(windows.Fault{Call: "Volumes.DeleteMountPoint", Action: windows.Fail, Errno: win32.ErrorInvalidParameter})
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), plugins+`\pv`, true), nil)
	if w.Exists(plugins + `\pv`) {
		t.Error("it is still there")
	}
}

// Wine says so of links.
func TestRmdir_believesNoFalseSuccess(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods + `\p\a`)
	w.do(w.Symlink(pods+`\link`, outside, true))
	w.Inject(windows.Fault{Call: "Directory.Remove", Action: windows.Pretend})
	for _, path := range []string{`\p`, `\link`} {
		if err := w.api.Filesystem.Rmdir(ctx(), pods+path, true); err == nil {
			t.Errorf("%s still exists, and no error says so", path)
		}
	}
}

// A file that is open without FILE_SHARE_DELETE is waited for as long as one whose
// removal is pending: two seconds for all of a tree.
func TestRmdir_waitsForFilesThatAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.mkdir(pods + `\p\a`)
		for _, name := range []string{"first", "open"} {
			w.do(w.WriteFile(pods+`\p\a\`+name, 1))
		}
		first, err := w.Open(pods+`\p\a\first`, false)
		w.do(err)
		time.AfterFunc(time.Second, first.Close)
		file, err := w.Open(pods+`\p\a\open`, false)
		w.do(err)
		began := time.Now()
		err = w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true)
		mustBe(t, err, backend.ErrInUse)
		mustBe(t, err, win32.ErrorSharingViolation)
		if !strings.Contains(err.Error(), pods+`\p\a\open`) {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the answer took %v", took)
		}
		time.AfterFunc(time.Second, file.Close)
		mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true), nil)
		w.idle()
	})
}

func TestRmdir_emptiesADirectoryAgainThatWasFilledMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods + `\p\a`)
	fills := 0
	defer w.Hook(func(call windows.Call) {
		if call.Matches("Directory.Remove", pods+`\p`) && fills < 3 {
			fills++
			_ = w.WriteFile(fmt.Sprintf(`%s\p\new%d`, pods, fills), 1)
		}
	})()
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true), nil)
	if fills != 3 || w.Exists(pods+`\p`) {
		t.Error(fills, w.tree(pods))
	}
}

func TestRmdir_givesUpOnADirectoryThatIsAlwaysFilled(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods + `\p`)
	defer w.Hook(func(call windows.Call) {
		if call.Matches("Directory.Remove", pods+`\p`) {
			_ = w.WriteFile(pods+`\p\new`, 1)
		}
	})()
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true), backend.ErrInUse)
}

func TestRmdir_stopsBetweenEntriesWhenItsCallerLeaves(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.mkdir(fmt.Sprintf(`%s\p\d%02d`, pods, i))
	}
	limited, cancel := context.WithCancel(ctx())
	removed := 0
	defer w.Hook(func(call windows.Call) {
		if call.Name == "Directory.Remove" {
			if removed++; removed == 5 {
				cancel()
			}
		}
	})()
	mustBe(t, w.api.Filesystem.Rmdir(limited, pods+`\p`, true), context.Canceled)
	names, err := w.List(pods + `\p`)
	if err != nil || len(names) != 15 {
		t.Errorf("%d are left, %v", len(names), err)
	}
	w.idle()
}

func TestRmdir_refusesATreeThatIsTooDeep(t *testing.T) {
	w := newWorld(t)
	calls := w.Calls()
	dir, err := calls.Files.OpenRoot(pods)
	w.do(err)
	for range 1030 { // deeper than a path can say
		w.do(dir.Mkdir("d"))
		next, err := dir.Open("d")
		w.do(err)
		w.do(dir.Close())
		dir = next
	}
	w.do(dir.Close())
	err = w.api.Filesystem.Rmdir(ctx(), pods+`\d`, true)
	mustBe(t, err, backend.ErrPrecondition)
	if len(err.Error()) > 4000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	w.idle()
}

func TestRmdirContents_keepsTheDirectory(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods + `\p\a\b`)
	w.do(w.WriteFile(pods+`\p\file`, 1))
	w.do(w.Symlink(pods+`\p\link`, outside, true))
	before := w.tree(outside)
	for range 2 {
		mustBe(t, w.api.Filesystem.RmdirContents(ctx(), pods+`\p`), nil)
	}
	names, err := w.List(pods + `\p`)
	if err != nil || len(names) > 0 || w.tree(outside) != before {
		t.Errorf("%v %v\n%s", names, err, w.tree(outside))
	}
	w.idle()
}

func TestRmdirContents_entersNoLinkAndNoMountedFolder(t *testing.T) {
	w := newWorld(t)
	w.do(w.Symlink(pods+`\link`, outside, true))
	w.do(w.Junction(pods+`\junction`, outside))
	w.mount(plugins+`\pv`, "one")
	w.mkdir(plugins + `\pv\keep`)
	w.do(w.WriteFile(pods+`\file`, 1))
	before := w.tree(outside)
	for path, want := range map[string]error{
		pods + `\link`: backend.ErrPrecondition, pods + `\junction`: backend.ErrPrecondition, plugins + `\pv`: backend.ErrPrecondition,
		pods + `\file`: backend.ErrPrecondition, pods + `\nothing`: backend.ErrNotFound,
	} {
		if err := w.api.Filesystem.RmdirContents(ctx(), path); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if w.tree(outside) != before || !w.Exists(plugins+`\pv\keep`) {
		t.Error("content elsewhere is gone")
	}
}

// An entry that another program has open with FILE_SHARE_DELETE keeps its name
// until that program closes it (STATUS_DELETE_PENDING). A removal waits for it, and
// says what is open when it takes too long: nothing is denied.
func TestRmdir_waitsForARemovalThatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, force := range []bool{false, true} {
			w := newWorld(t)
			w.SetOptions(func(o *windows.Options) { o.DeletePending = true })
			for _, path := range []string{`\p`, `\p\a\b`} {
				if !force && path != `\p` {
					continue
				}
				w.mkdir(pods + path)
				file, err := w.Open(pods+path, true)
				w.do(err)
				time.AfterFunc(time.Second, file.Close)
				mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, force), nil)
			}
			w.mkdir(pods + `\p`)
			file, err := w.Open(pods+`\p`, true)
			w.do(err)
			err = w.api.Filesystem.Rmdir(ctx(), pods+`\p`, force)
			mustBe(t, err, backend.ErrInUse)
			mustBe(t, err, win32.ErrorDeletePending)
			mustBe(t, w.api.Filesystem.Mkdir(ctx(), pods+`\p`), backend.ErrInUse)
			mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, force), backend.ErrInUse)
			file.Close()
			mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true), nil)
			w.idle()
		}
	})
}

// NTFS takes half of a surrogate pair in a name.
func TestRmdir_withForceRemovesNamesThatAreNoText(t *testing.T) {
	w := newWorld(t)
	w.mkdir(pods + `\p\a`)
	for _, half := range []string{"\xed\xa0\x80", "\xed\xb0\x80", "\xed\xa0\x81x"} {
		w.do(w.WriteFile(pods+`\p\a\x`+half, 1))
		w.mkdir(pods + `\p\d` + half)
		w.do(w.WriteFile(pods+`\p\d`+half+`\file`, 1))
	}
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\p`, true), nil)
	if w.Exists(pods + `\p`) {
		t.Error("it is still there")
	}
	w.idle()
}
