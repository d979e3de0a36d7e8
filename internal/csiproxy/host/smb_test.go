package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const (
	shareRemote = `\\Server\Share`
	shareKeyed  = `\\server\share`
	smbPassword = "correct horse battery"
	podsDir     = kubeletDir + `\plugins\smb`
)

// smbRig is a machine with shares that two users may use.
func smbRig(t *testing.T) (*rig, api.Host) {
	t.Helper()
	r := newRig(t, windows.Options{})
	r.log = &bytes.Buffer{}
	users := map[string]string{"alice": smbPassword, "bob": "bob's own"}
	for _, share := range []string{"share", "share2"} {
		mustDo(t, r.machine.AddShare(windows.SMBShare{Server: "server", Share: share, Users: users}))
	}
	mustDo(t, r.machine.MkdirAll(podsDir))
	return r, r.host()
}

func at(name string) string { return podsDir + `\` + name }

func alice(local string) api.SMBMount {
	return api.SMBMount{Remote: shareRemote, Local: local, Username: "alice", Password: smbPassword}
}

func bob(local string) api.SMBMount {
	return api.SMBMount{Remote: shareRemote, Local: local, Username: "bob", Password: "bob's own"}
}

func (r *rig) mappedUser(remote string) string {
	user, _ := r.machine.MappedUser(remote)
	return user
}

// left are the records in the state directory.
func (r *rig) left() []string {
	entries, err := os.ReadDir(r.state)
	mustDo(r.t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// changes records what an operation changes by SMB calls.
func (r *rig) changes(do func()) []string {
	stop := r.machine.Record()
	do()
	var names []string
	for _, call := range stop() {
		if call.Changes && strings.HasPrefix(call.Name, "SMB.") {
			names = append(names, call.Name)
		}
	}
	return names
}

// A share, from the mapping to its end.
func TestSMB_mountsAndUnmounts(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	if again := r.changes(func() { mustDo(t, h.SMB.Mount(ctx, alice(at("a")))) }); len(again) > 0 {
		t.Errorf("the repeated call did %q", again)
	}
	if user := r.mappedUser(shareKeyed); user != "alice" {
		t.Errorf("mapped for %q", user)
	}
	if link, err := r.machine.Readlink(at("a")); err != nil || link.Target() != shareKeyed+`\` {
		t.Errorf("%+v, %v", link, err)
	}
	for range 2 {
		mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	}
	if user := r.mappedUser(shareKeyed); user != "" || r.machine.Exists(at("a")) || len(r.left()) > 0 {
		t.Errorf("mapped for %q, left %q", user, r.left())
	}
}

// A bad local path leaves no mapping behind.
func TestSMB_checksTheLocalPathFirst(t *testing.T) {
	r, h := smbRig(t)
	mustDo(t, r.machine.MkdirAll(at("directory")))
	mustDo(t, r.machine.MkdirAll(`C:\elsewhere`))
	mustDo(t, r.machine.Symlink(at("link"), `C:\elsewhere`, true))
	for path, want := range map[string]error{
		`C:\windows\x`: backend.ErrInvalid, kubeletDir: backend.ErrInvalid, kubeletDir + `-evil\x`: backend.ErrInvalid,
		at(`..\x`): backend.ErrInvalid, at("x:y"): backend.ErrInvalid,
		at("directory"): backend.ErrExists, at("link"): backend.ErrExists, at(`missing\x`): backend.ErrNotFound,
		at(`link\x`): backend.ErrPrecondition,
	} {
		changes := r.changes(func() {
			if err := h.SMB.Mount(t.Context(), alice(path)); !errors.Is(err, want) {
				t.Errorf("%s: %v; want %v", path, err, want)
			}
		})
		if len(changes) > 0 || len(r.left()) > 0 {
			t.Errorf("%s: %q, left %q", path, changes, r.left())
		}
	}
	if !r.machine.Exists(at("directory")) || !r.machine.Exists(at("link")) {
		t.Error("the existing entry was removed")
	}
}

// A virus scanner opens a link without FILE_SHARE_DELETE for a moment. An unmount
// waits for it, and does not remove a directory that has replaced the link.
func TestSMB_unmountWaitsForALinkThatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := smbRig(t)
		ctx := t.Context()
		remove := func() *windows.Injected {
			return r.machine.Inject(windows.Fault{
				Call: "Directory.Remove", Target: at("a"), Action: windows.Fail, Errno: win32.ErrorSharingViolation,
			})
		}
		mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
		time.AfterFunc(time.Second, remove().Remove)
		mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
		if user := r.mappedUser(shareKeyed); user != "" || r.machine.Exists(at("a")) {
			t.Errorf("mapped for %q", user)
		}

		mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
		open := remove()
		began := time.Now()
		wantError(t, h.SMB.Unmount(ctx, shareRemote, at("a")), backend.ErrInUse, "ERROR_SHARING_VIOLATION (32)", at("a"))
		if took := time.Since(began); took > 2*pendingLimit {
			t.Errorf("the answer took %v", took)
		}
		if user := r.mappedUser(shareKeyed); user != "alice" || !r.machine.Exists(at("a")) {
			t.Errorf("a link that stays lost its mapping: mapped for %q", user)
		}
		leaving, leave := context.WithTimeout(ctx, time.Second)
		defer leave()
		if err := h.SMB.Unmount(leaving, shareRemote, at("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller left and got %v", err)
		}
		time.AfterFunc(time.Second, func() {
			open.Remove()
			mustDo(t, r.machine.Remove(at("a")))
			mustDo(t, r.machine.MkdirAll(at("a")))
		})
		mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
		if !r.machine.Exists(at("a")) {
			t.Error("the directory that replaced the link was removed")
		}
	})
}

// A mapping goes with the last mount of its share.
func TestSMB_countsTheMountsOfAShare(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	other := alice(at("other"))
	other.Remote = `//server/share2`
	sub := alice(at("sub"))
	sub.Remote = `//SERVER/share/Sub/Directory`
	for _, mount := range []api.SMBMount{alice(at("a")), alice(at("b")), alice(""), other, sub} {
		mustDo(t, h.SMB.Mount(ctx, mount))
	}
	h = r.host() // the counting survives the process
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, ""))
	mustDo(t, h.SMB.Unmount(ctx, sub.Remote, at("sub")))
	if r.mappedUser(shareKeyed) != "alice" || !r.machine.Exists(at("b")) {
		t.Error("unmounting one volume disconnected another")
	}
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("b")))
	if r.mappedUser(shareKeyed) != "" || r.mappedUser(`\\server\share2`) != "alice" {
		t.Error("the last mount did not end the mapping, or ended another's")
	}
}

// The SMB driver of the group API removes its link by Rmdir, and
// then asks for the mapping's end without a link.
func TestSMB_theGroupAPIsDriverEndsItsOwnMountsOnly(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	mustDo(t, h.SMB.Mount(ctx, alice(at("group1"))))
	mustDo(t, h.SMB.Mount(ctx, alice(at("kep"))))
	mustDo(t, h.Filesystem.Rmdir(ctx, at("group1"), true))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, ""))
	if r.mappedUser(shareKeyed) != "alice" {
		t.Fatal("the driver of the group API disconnected a mount of the KEP's API")
	}
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("kep")))
	mustDo(t, h.SMB.Mount(ctx, alice(at("group2"))))
	mustDo(t, h.Filesystem.Rmdir(ctx, at("group2"), true))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, ""))
	if r.mappedUser(shareKeyed) != "" || len(r.left()) > 0 {
		t.Errorf("still mapped, left %q", r.left())
	}
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, "")) // none is fine
}

// A second user of a share does not get the first one's rights.
func TestSMB_comparesCredentials(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	wrong := alice(at("b"))
	wrong.Password = "guessed"
	for _, host := range []api.Host{h, r.host()} { // also after a restart of the proxy
		wantError(t, host.SMB.Mount(ctx, bob(at("b"))), backend.ErrPrecondition, "another user", "ERROR_SESSION_CREDENTIAL_CONFLICT (1219)")
		wantError(t, host.SMB.Mount(ctx, wrong), backend.ErrPrecondition, "another password")
		if r.machine.Exists(at("b")) {
			t.Error("a link was made")
		}
	}
	upper := alice(at("b"))
	upper.Username = "ALICE"
	mustDo(t, r.host().SMB.Mount(ctx, upper)) // names are compared without case
	// Windows itself refuses a second user of the server (1219).
	otherShare := bob(at("c"))
	otherShare.Remote = `\\server\share2`
	wantError(t, h.SMB.Mount(ctx, otherShare), backend.ErrPrecondition, "ERROR_SESSION_CREDENTIAL_CONFLICT (1219)")
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("b")))
	mustDo(t, h.SMB.Mount(ctx, bob(at("b"))))
	if r.mappedUser(shareKeyed) != "bob" {
		t.Error(r.mappedUser(shareKeyed))
	}
}

// After a change of the password on the server a mapping works until it has to
// connect again.
func TestSMB_takesANewPassword(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	mustDo(t, h.SMB.Mount(ctx, alice(at("b"))))
	mustDo(t, r.machine.AddShare(windows.SMBShare{Server: "server", Share: "share", Users: map[string]string{"alice": "changed"}}))
	renewed := alice(at("c"))
	renewed.Password = "changed"
	wantError(t, h.SMB.Mount(ctx, renewed), backend.ErrPrecondition, "another password") // it could be a wrong one
	r.machine.Disconnect("server")
	wrong := renewed
	wrong.Password = "wrong"
	wantError(t, h.SMB.Mount(ctx, wrong), backend.ErrCredentials, "ERROR_INVALID_PASSWORD (86)")
	mustDo(t, h.SMB.Mount(ctx, renewed))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("c")))
	if r.mappedUser(shareKeyed) != "alice" {
		t.Error("b has lost its mapping")
	}
	// Alone, a new password is taken at once.
	mustDo(t, r.machine.AddShare(windows.SMBShare{Server: "server", Share: "share", Users: map[string]string{"alice": "again"}}))
	renewed.Local, renewed.Password = at("b"), "again"
	mustDo(t, h.SMB.Mount(ctx, renewed))
}

func TestSMB_makesABrokenMappingAnew(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	for _, status := range []uint32{windows.MappingPaused, windows.MappingNetworkError, windows.MappingUnavailable} {
		mustDo(t, r.machine.SetMappingStatus(shareKeyed, status))
		mustDo(t, h.SMB.Mount(ctx, alice(at("b"))))
		if link, err := h.Filesystem.IsLink(ctx, at("b")); !link || err != nil {
			t.Errorf("status %d: %v, %v", status, link, err)
		}
	}
	r.machine.Reboot() // no mapping survives, links and records do
	h = r.host()
	mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	if r.mappedUser(shareKeyed) != "alice" {
		t.Error("b has lost its mapping")
	}
}

// A mapping that csi-proxy did not make is not used, while it works.
func TestSMB_doesNotUseAForeignMapping(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	foreign := r.machine.Calls().SMB
	mustDo(t, foreign.Create(ctx, win32.SMBMappingRequest{Remote: shareKeyed, Username: "alice", Password: smbPassword}))
	wantError(t, h.SMB.Mount(ctx, alice(at("a"))), backend.ErrPrecondition, "Remove-SmbGlobalMapping")
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a"))) // the link was not made by this proxy
	if r.mappedUser(shareKeyed) != "alice" || len(r.left()) > 0 {
		t.Error("it was touched")
	}
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, ""))
	mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	// A broken one is replaced.
	mustDo(t, foreign.Create(ctx, win32.SMBMappingRequest{Remote: `\\server\share2`, Username: "alice", Password: smbPassword}))
	mustDo(t, r.machine.SetMappingStatus(`\\server\share2`, windows.MappingNetworkError))
	other := alice(at("b"))
	other.Remote = `\\server\share2`
	mustDo(t, h.SMB.Mount(ctx, other))
}

// The errors of a mapping, each with nothing left behind.
func TestSMB_explainsItsErrors(t *testing.T) {
	r, h := smbRig(t)
	users := map[string]string{"alice": smbPassword}
	for share, spec := range map[string]windows.SMBShare{
		"plain":   {NoEncryption: true, Users: users},
		"plain87": {NoEncryption: true, PrivacyError: win32.ErrorInvalidParameter, Users: users},
		"denied":  {Denied: users},
	} {
		spec.Server, spec.Share = "second", share
		mustDo(t, r.machine.AddShare(spec))
	}
	mustDo(t, r.machine.AddShare(windows.SMBShare{Server: "away", Share: "share", Users: users}))
	r.machine.SetServerReachable("away", false)
	for name, test := range map[string]struct {
		change func(*api.SMBMount)
		want   error
		says   string
	}{
		"wrong password":  {func(m *api.SMBMount) { m.Password = "wrong" }, backend.ErrCredentials, "ERROR_INVALID_PASSWORD (86)"},
		"unknown user":    {func(m *api.SMBMount) { m.Username = "eve" }, backend.ErrCredentials, "ERROR_LOGON_FAILURE (1326)"},
		"no user":         {func(m *api.SMBMount) { m.Username = "" }, backend.ErrInvalid, "user name"},
		"a long password": {func(m *api.SMBMount) { m.Password = api.Secret(strings.Repeat("p", 513)) }, backend.ErrInvalid, "513"},
		"no such server":  {func(m *api.SMBMount) { m.Remote = `\\nobody\share` }, backend.ErrNotFound, "ERROR_BAD_NETPATH (53)"},
		"a server away":   {func(m *api.SMBMount) { m.Remote = `\\away\share` }, backend.ErrNotFound, "ERROR_BAD_NETPATH (53)"},
		"no such share":   {func(m *api.SMBMount) { m.Remote = `\\server\nothing` }, backend.ErrNotFound, "ERROR_BAD_NET_NAME (67)"},
		"no encryption":   {func(m *api.SMBMount) { m.Remote = `\\second\plain` }, backend.ErrInvalid, "ERROR_NETWORK_ACCESS_DENIED (65)"},
		"no privacy":      {func(m *api.SMBMount) { m.Remote = `\\second\plain87` }, backend.ErrInvalid, "--require-privacy"},
		"no rights":       {func(m *api.SMBMount) { m.Remote = `\\second\denied` }, backend.ErrDenied, "ERROR_ACCESS_DENIED (5)"},
	} {
		t.Run(name, func(t *testing.T) {
			mount := alice(at("a"))
			test.change(&mount)
			wantError(t, h.SMB.Mount(t.Context(), mount), test.want, test.says)
			if state := r.machine.State(); len(state.Mappings) > 0 || len(r.left()) > 0 || r.machine.Exists(at("a")) {
				t.Errorf("left %+v, %q", state.Mappings, r.left())
			}
		})
	}
}
