package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/simulated"
)

const (
	shareRemote = `\\Server\Share`
	shareKeyed  = `\\server\share`
	smbPassword = "correct horse battery"
	podsDir     = kubeletDir + `\plugins\smb`
)

// smbRig is a machine with a share that two users may use.
func smbRig(t *testing.T) (*rig, hub.Host) {
	t.Helper()
	r := newRig(t, simulated.Options{})
	users := map[string]string{"alice": smbPassword, "bob": "bob's own"}
	mustDo(t, r.machine.AddShare(simulated.SMBShare{Server: "server", Share: "share", Users: users}))
	mustDo(t, r.machine.AddShare(simulated.SMBShare{Server: "server", Share: "other", Users: users}))
	h := r.host()
	mustDo(t, h.Filesystem.Mkdir(t.Context(), podsDir))
	return r, h
}

func at(name string) string { return podsDir + `\` + name }

func alice(local string) hub.SMBMount {
	return hub.SMBMount{Remote: shareRemote, Local: local, Username: "alice", Password: smbPassword}
}

func (r *rig) mappedUser(remote string) string {
	user, _ := r.machine.MappedUser(remote)
	return user
}

// G-2: a share, from the mapping to its end.
func TestSMB_mountsAndUnmounts(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	for range 2 { // a repeated call is fine
		mustDo(t, h.SMB.Mount(ctx, alice(at("a"))))
	}
	if user := r.mappedUser(shareKeyed); user != "alice" {
		t.Errorf("mapped for %q", user)
	}
	if link, err := h.Filesystem.IsLink(ctx, at("a")); !link || err != nil {
		t.Error(link, err)
	}
	for range 2 {
		mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	}
	if exists, err := h.Filesystem.PathExists(ctx, at("a")); exists || err != nil {
		t.Error(exists, err)
	}
	if user := r.mappedUser(shareKeyed); user != "" {
		t.Errorf("still mapped for %q", user)
	}
	left, err := os.ReadDir(r.state)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v left in the state directory", left, err)
	}
	_ = backend.ErrBusy
	_ = errors.Is
	_ = fs.ErrExist
	_ = filepath.Join
	_ = strings.Contains
	_ = win32.ErrorAccessDenied
}
