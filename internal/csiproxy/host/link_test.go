package host_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

func TestLink_leadsToADirectoryALinkOrAMountedFolder(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins + `\dir`)
	w.do(w.Symlink(plugins+`\link`, plugins+`\dir`, true))
	w.mount(plugins+`\pv`, "one")
	for _, source := range []string{`\dir`, `\link`, `\pv`} {
		link := pods + source
		for range 2 { // the equal one is fine
			mustBe(t, w.api.Filesystem.Link(ctx(), plugins+source, link), nil)
		}
		data, err := w.Readlink(link)
		info, statErr := w.Lstat(link)
		if err != nil || statErr != nil || data.Tag != win32.ReparseTagSymlink || data.Target() != plugins+source || !info.IsDir() {
			t.Errorf("%+v %+v %v %v", data, info, err, statErr)
		}
	}
	mustBe(t, w.api.Filesystem.Link(ctx(), `c:\VAR\LIB\KUBELET\PLUGINS\DIR\`, pods+`\DIR`), nil) // equal in another case
	w.idle()
}

// os.Symlink makes a link to a file when the source is missing.
func TestLink_makesNoLinkToAFileNorToNothing(t *testing.T) {
	w := newWorld(t)
	w.do(w.WriteFile(plugins+`\file`, 1))
	mustBe(t, w.api.Filesystem.Link(ctx(), plugins+`\nothing`, pods+`\a`), backend.ErrNotFound)
	mustBe(t, w.api.Filesystem.Link(ctx(), plugins+`\file`, pods+`\a`), backend.ErrPrecondition)
	mustBe(t, w.api.Filesystem.Link(ctx(), plugins+`\no\way`, pods+`\a`), backend.ErrNotFound)
	if w.Exists(pods + `\a`) {
		t.Error("there is a link")
	}
	w.mkdir(plugins + `\dir`)
	mustBe(t, w.api.Filesystem.Link(ctx(), plugins+`\dir`, pods+`\no\way`), backend.ErrNotFound)
	mustBe(t, w.api.Filesystem.Link(ctx(), plugins+`\dir`, plugins+`\DIR`), backend.ErrInvalid)
}

func TestLink_replacesNothing(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins+`\dir`, plugins+`\second`, pods+`\dir`)
	w.do(w.WriteFile(pods+`\file`, 1))
	w.do(w.Symlink(pods+`\second`, plugins+`\second`, true))
	w.do(w.Symlink(pods+`\dangling`, plugins+`\nothing`, true))
	w.do(w.Symlink(pods+`\tofile`, plugins+`\dir`, false)) // as upstream made it
	w.do(w.Junction(pods+`\junction`, plugins+`\dir`))
	before := w.tree(pods)
	for _, link := range []string{`\dir`, `\file`, `\second`, `\dangling`, `\tofile`, `\junction`} {
		err := w.api.Filesystem.Link(ctx(), plugins+`\dir`, pods+link)
		if !errors.Is(err, backend.ErrExists) || !strings.Contains(err.Error(), pods+link) {
			t.Errorf("%s: %v", link, err)
		}
	}
	if after := w.tree(pods); after != before {
		t.Errorf("now it is\n%s", after)
	}
}

// Wine answers success and makes nothing.
func TestLink_believesNoFalseSuccess(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins + `\dir`)
	w.Inject(windows.Fault{Call: "Directory.Symlink", Action: windows.Pretend})
	err := w.api.Filesystem.Link(ctx(), plugins+`\dir`, pods+`\a`)
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
}

func TestLink_goesThroughNoLink(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins + `\dir`)
	w.do(w.Symlink(pods+`\away`, outside, true))
	before := w.tree(outside)
	mustBe(t, w.api.Filesystem.Link(ctx(), plugins+`\dir`, pods+`\away\a`), backend.ErrPrecondition)
	mustBe(t, w.api.Filesystem.Link(ctx(), pods+`\away\sub`, pods+`\a`), backend.ErrPrecondition)
	if after := w.tree(outside); after != before {
		t.Error(after)
	}
}

// The path of IsSymlink and IsMountPoint is checked, as any other.
func TestIsLink_reportsLinksWhoseTargetExists(t *testing.T) {
	w := newWorld(t)
	w.mkdir(plugins+`\dir`, pods+`\a`)
	w.do(w.WriteFile(pods+`\file`, 1))
	w.do(w.Symlink(pods+`\link`, plugins+`\dir`, true))
	w.do(w.Symlink(pods+`\a\relative`, `..\..\plugins\dir`, true))
	w.do(w.Symlink(pods+`\a\up`, `..\..\plugins\nothing`, true))
	w.do(w.Symlink(pods+`\chain`, pods+`\link`, true))
	w.do(w.Symlink(pods+`\dangling`, plugins+`\nothing`, true))
	w.do(w.Symlink(pods+`\away`, outside, true))
	w.do(w.Junction(pods+`\junction`, plugins+`\dir`))
	w.do(w.Junction(pods+`\deadjunction`, plugins+`\nothing`))
	w.mount(pods+`\pv`, "one")
	w.mkdir(pods + `\gone`)
	w.do(w.SetReparse(pods+`\gone`, win32.NewMountPoint(someVolume)))
	w.mkdir(pods+`\second`, pods+`\device`, pods+`\root`)
	w.do(w.SetReparse(pods+`\second`, win32.Reparse{Tag: win32.ReparseTagAFUnix}))
	w.do(w.SetReparse(pods+`\device`, win32.NewSymlink(`\\.\pipe\x`)))
	w.do(w.SetReparse(pods+`\root`, win32.Reparse{Tag: win32.ReparseTagMountPoint, Substitute: `\??\GLOBALROOT\Device\HarddiskVolume1\`}))
	for path, want := range map[string]bool{
		kubelet: false, plugins: false, plugins + `\dir`: false, pods + `\file`: false,
		pods + `\link`: true, pods + `\chain`: true, pods + `\a\relative`: true, pods + `\away`: true,
		pods + `\junction`: true, pods + `\pv`: true,
		pods + `\dangling`: false, pods + `\a\up`: false, pods + `\deadjunction`: false, pods + `\gone`: false,
		pods + `\second`: false, pods + `\device`: false, pods + `\root`: false,
	} {
		if got, err := w.api.Filesystem.IsLink(ctx(), path); err != nil || got != want {
			t.Errorf("%s is a link: %t, %v", path, got, err)
		}
	}
	_, err := w.api.Filesystem.IsLink(ctx(), pods+`\nothing`)
	mustBe(t, err, backend.ErrNotFound)
	w.idle()
}

// A link on a mounted volume is its user's: were it followed, it could have the
// machine log in at any server.
func TestIsLink_looksAtNoTargetOfALinkOnAMountedVolume(t *testing.T) {
	w := newWorld(t)
	w.mount(pods+`\pv`, "one")
	w.do(w.Symlink(pods+`\pv\evil`, `\\evil\share\x`, true))
	stop := w.Record()
	_, err := w.api.Filesystem.IsLink(ctx(), pods+`\pv\evil`)
	mustBe(t, err, backend.ErrPrecondition)
	for _, call := range stop() {
		if call.Name == "Files.Attributes" {
			t.Error("the server was asked")
		}
	}
}
