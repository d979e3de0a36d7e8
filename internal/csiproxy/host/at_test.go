package host_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

func TestAt_returnsTheVolumeOfAMountedFolderOrALinkToOne(t *testing.T) {
	w := newWorld(t)
	volume := w.mount(plugins+`\pv`, "one")
	w.do(w.Symlink(pods+`\link`, plugins+`\pv`, true))
	w.do(w.Symlink(pods+`\trailing`, plugins+`\pv\`, true))
	w.do(w.Symlink(pods+`\chain`, pods+`\link`, true))
	w.do(w.Symlink(pods+`\relative`, `..\plugins\pv`, true))
	w.do(w.Junction(pods+`\junction`, plugins+`\pv`))
	for _, path := range []string{plugins + `\pv`, pods + `\link`, pods + `\trailing`, pods + `\chain`, pods + `\relative`, pods + `\junction`, `c:\VAR\lib\kubelet\PODS\LINK`} {
		got, err := w.api.Volumes.At(ctx(), path)
		if err != nil || !strings.EqualFold(got, volume) {
			t.Errorf("at %s: %s, %v", path, got, err)
		}
	}
	w.idle()
}

// A driver in the field searches for this text, and fails NodeStage and
// NodeUnstage without it.
func TestAt_hasTheTextThatDriversMatchWhereNoVolumeIs(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins + `\dir`)
	w.do(w.WriteFile(plugins+`\file`, 1))
	w.do(w.Symlink(pods+`\todir`, plugins+`\dir`, true))
	w.do(w.Symlink(pods+`\dangling`, plugins+`\nothing`, true))
	w.mkdir(plugins + `\second`)
	w.do(w.SetReparse(plugins+`\second`, win32.Reparse{Tag: win32.ReparseTagAFUnix}))
	for _, path := range []string{
		plugins + `\nothing`, plugins + `\no\way`, plugins + `\dir`, plugins + `\file`, plugins + `\file\x`, plugins + `\second`,
		pods + `\todir`, pods + `\dangling`, kubelet,
	} {
		_, err := w.api.Volumes.At(ctx(), path)
		want := fmt.Sprintf("no volume at %s, because it does not exist or is not mounted", path)
		if !errors.Is(err, backend.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("at %s: %v", path, err)
		}
	}
}

// The tag of a symbolic link has all the bits of a mount point's but one.
func TestAt_takesNoLinkForAMountedFolder(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins+`\a`, plugins+`\b`)
	w.do(w.SetReparse(plugins+`\a`, win32.Reparse{
		Tag: win32.ReparseTagSymlink, Substitute: `\??\Volume{12345678-1234-1234-1234-123456789abc}\`,
	}))
	w.do(w.SetReparse(plugins+`\b`, win32.Reparse{Tag: win32.ReparseTagMountPoint | 0x10, Data: []byte{1, 2, 3, 4}}))
	for _, path := range []string{plugins + `\a`, plugins + `\b`} {
		if volume, err := w.api.Volumes.At(ctx(), path); err == nil {
			t.Errorf("%s has the volume %s", path, volume)
		}
	}
}

// The disk is gone, and the driver unstages its volume.
func TestAt_returnsTheVolumeThatAFolderNamesWhenItIsGone(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins + `\pv`)
	w.do(w.SetReparse(plugins+`\pv`, win32.NewMountPoint(someVolume)))
	got, err := w.api.Volumes.At(ctx(), plugins+`\pv`)
	if err != nil || got != someVolume {
		t.Error(got, err)
	}
}

func TestAt_followsLinksWithinTheRootsOnly(t *testing.T) {
	w := newWorld(t)
	w.mount(`C:\mounts\pv`, "one")
	w.do(w.Symlink(pods+`\away`, `C:\mounts\pv`, true))
	w.do(w.Symlink(pods+`\up`, `..\..\..\..\mounts\pv`, true))
	w.do(w.Symlink(pods+`\share`, `\\server\share\x`, true))
	w.do(w.Symlink(pods+`\circle`, pods+`\circle`, true))
	w.do(w.Symlink(pods+`\ping`, pods+`\pong`, true))
	w.do(w.Symlink(pods+`\pong`, pods+`\ping`, true))
	for _, path := range []string{`\away`, `\up`, `\share`, `\circle`, `\ping`} {
		for name, ask := range map[string]func(string) (string, error){
			"At":      func(p string) (string, error) { return w.api.Volumes.At(ctx(), p) },
			"Closest": func(p string) (string, error) { return w.api.Volumes.Closest(ctx(), p) },
		} {
			if volume, err := ask(pods + path); !errors.Is(err, backend.ErrPrecondition) {
				t.Errorf("%s %s: %s, %v", name, path, volume, err)
			}
		}
	}
	w.idle()
}

func TestAt_goesThroughNoLinkOnTheWay(t *testing.T) {
	w := newWorld(t)
	w.mount(plugins+`\dir\pv`, "one")
	w.do(w.Symlink(pods+`\link`, plugins+`\dir`, true))
	_, err := w.api.Volumes.At(ctx(), pods+`\link\pv`)
	mustBe(t, err, backend.ErrPrecondition)
}

func TestAt_followsALimitedNumberOfLinks(t *testing.T) {
	w := newWorld(t)
	w.mount(plugins+`\pv`, "one")
	w.do(w.Symlink(pods+`\l0`, plugins+`\pv`, true))
	for i := range 260 {
		w.do(w.Symlink(fmt.Sprintf(`%s\l%d`, pods, i+1), fmt.Sprintf(`%s\l%d`, pods, i), true))
	}
	_, err := w.api.Volumes.At(ctx(), pods+`\l255`)
	mustBe(t, err, nil)
	_, err = w.api.Volumes.At(ctx(), pods+`\l256`)
	mustBe(t, err, backend.ErrPrecondition)
}

func TestClosest_returnsTheVolumeOfAPath(t *testing.T) {
	w := newWorld(t)
	volume := w.mount(plugins+`\pv`, "one")
	inner := w.mount(plugins+`\pv\inner`, "two")
	w.mkdir(plugins+`\pv\dir\sub`, plugins+`\dir`)
	w.do(w.WriteFile(plugins+`\pv\dir\file`, 1))
	w.do(w.Symlink(pods+`\link`, plugins+`\pv`, true))
	w.do(w.Symlink(pods+`\deep`, plugins+`\pv\dir`, true)) // link → directory → mount
	w.do(w.Symlink(pods+`\plain`, plugins+`\dir`, true))
	w.do(w.Symlink(pods+`\up`, pods+`\deep`, true))
	drive, err := w.Calls().Volumes.MountPoint(`C:\`)
	w.do(err)
	for path, want := range map[string]string{
		plugins + `\pv`: volume, plugins + `\pv\dir\sub`: volume, plugins + `\pv\dir\file`: volume, plugins + `\pv\inner`: inner,
		pods + `\link`: volume, pods + `\link\dir`: volume, pods + `\deep`: volume, pods + `\deep\sub`: volume, pods + `\up\sub`: volume,
		pods + `\link\inner`: inner,
		pods + `\plain`:      drive, plugins + `\dir`: drive, kubelet: drive,
	} {
		if got, err := w.api.Volumes.Closest(ctx(), path); err != nil || !strings.EqualFold(got, want) {
			t.Errorf("closest to %s: %s, %v, and not %s", path, got, err, want)
		}
	}
	for _, path := range []string{plugins + `\nothing`, plugins + `\pv\nothing`, pods + `\link\no\way`} {
		_, err := w.api.Volumes.Closest(ctx(), path)
		mustBe(t, err, backend.ErrNotFound)
	}
	w.idle()
}

// A program that may write to a directory can make it a mount point of any volume,
// also of the one that Windows itself is on.
func TestAMountPointThatWasPlanted_isNotEntered(t *testing.T) {
	w := newWorld(t)
	drive, err := w.Calls().Volumes.MountPoint(`C:\`)
	w.do(err)
	w.mkdir(pods + `\planted`)
	w.do(w.SetReparse(pods+`\planted`, win32.NewMountPoint(drive)))
	before := w.tree(outside)
	for name, err := range map[string]error{
		"Mkdir":         w.api.Filesystem.Mkdir(ctx(), pods+`\planted\precious\new`),
		"Rmdir":         w.api.Filesystem.Rmdir(ctx(), pods+`\planted\precious`, true),
		"RmdirContents": w.api.Filesystem.RmdirContents(ctx(), pods+`\planted\precious`),
		"Link":          w.api.Filesystem.Link(ctx(), plugins, pods+`\planted\precious\new`),
	} {
		if !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := w.tree(outside); after != before {
		t.Errorf("now it is\n%s", after)
	}
	// It is removed as the link that it is.
	mustBe(t, w.api.Filesystem.Rmdir(ctx(), pods+`\planted`, true), nil)
	if after := w.tree(outside); after != before {
		t.Errorf("now it is\n%s", after)
	}
	w.idle()
}

// A volume is entered where the mount manager has it, also by a process that
// did not mount it, but not when it is anywhere else as well.
func TestAMountedVolume_isEnteredOnlyIfItIsNowhereElse(t *testing.T) {
	w := newWorld(t)
	volume := w.mount(plugins+`\pv`, "one")
	w.host.Close()
	w.start()
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), plugins+`\pv\a`), nil)
	w.mkdir(plugins + `\pv2`)
	w.do(w.Calls().Volumes.SetMountPoint(plugins+`\pv2\`, volume)) // twice below the root: Windows reports one path for both
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), plugins+`\pv2\b`), nil)
	w.mkdir(`C:\elsewhere`)
	w.do(w.Calls().Volumes.SetMountPoint(`C:\elsewhere\`, volume))
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), plugins+`\pv\c`), backend.ErrPrecondition)
	w.idle()
}

func TestAMountedFolderThatIsReplacedWhileItIsEntered_leadsNowhere(t *testing.T) {
	w := newWorld(t)
	w.mount(plugins+`\pv`, "one")
	swapped := false
	defer w.Hook(func(call windows.Call) {
		if call.Name == "Directory.OpenMounted" && !swapped {
			swapped = true
			w.do(w.Calls().Volumes.DeleteMountPoint(plugins + `\pv\`))
			w.do(w.SetReparse(plugins+`\pv`, win32.NewMountPoint(outside)))
		}
	})()
	before := w.tree(outside)
	mustBe(t, w.api.Filesystem.Mkdir(ctx(), plugins+`\pv\new`), backend.ErrPrecondition)
	if after := w.tree(outside); !swapped || after != before {
		t.Errorf("swapped %t, now it is\n%s", swapped, after)
	}
	w.idle()
}
