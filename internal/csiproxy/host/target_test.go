package host_test

import (
	"errors"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// Where a volume may be mounted.
func TestMount_wantsAnEmptyDirectoryOfTheMachinesOwn(t *testing.T) {
	w := newWorld(t)
	volume := w.mount(plugins+`\first`, "one")
	other := w.mount(plugins+`\second`, "two")
	w.mkdir(plugins+`\empty`, plugins+`\full\x`, plugins+`\first\on\it`)
	w.do(w.WriteFile(plugins+`\file`, 1))
	w.do(w.Symlink(plugins+`\link`, plugins+`\empty`, true))
	w.do(w.Junction(plugins+`\junction`, plugins+`\empty`))
	w.do(w.Symlink(plugins+`\away`, outside, true))
	w.mkdir(outside + `\empty`)
	for path, want := range map[string]error{
		`\nothing`: backend.ErrNotFound, `\no\way`: backend.ErrNotFound, `\file`: backend.ErrPrecondition, `\full`: backend.ErrPrecondition,
		`\link`: backend.ErrPrecondition, `\junction`: backend.ErrPrecondition, `\away\empty`: backend.ErrPrecondition,
		`\second`: backend.ErrPrecondition, `\first\on\it`: backend.ErrPrecondition, `\empty`: nil, `\first`: nil,
	} {
		if err := w.api.Volumes.Mount(ctx(), volume, plugins+path); !errors.Is(err, want) {
			t.Errorf("mount at %s: %v", path, err)
		}
	}
	for _, path := range []string{`\empty`, `\first`} {
		if link, err := w.Readlink(plugins + path); err != nil || link.Target() != volume {
			t.Errorf("at %s is %+v, %v", path, link, err)
		}
	}
	if link, err := w.Readlink(plugins + `\second`); err != nil || link.Target() != other {
		t.Errorf("at the other one is %+v, %v", link, err)
	}
	w.idle()
}

// Whether Windows lets a directory be a mount point that is open is not known.
func TestMount_letsTheDirectoryGoWhenWindowsWantsItAlone(t *testing.T) {
	w := newWorld(t)
	volume := w.mount(plugins+`\first`, "one")
	w.mkdir(plugins + `\empty`)
	w.Inject(windows.Fault{Call: "Volumes.SetMountPoint", Times: 1, Action: windows.Fail, Errno: win32.ErrorSharingViolation})
	mustBe(t, w.api.Volumes.Mount(ctx(), volume, plugins+`\empty`), nil)
	w.idle()
}
