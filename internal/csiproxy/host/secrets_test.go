package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// No secret reaches an error, the log or a file.
func TestSecrets_areNowhere(t *testing.T) {
	r, h := smbRig(t)
	ctx := t.Context()
	mustDo(t, r.machine.AddTarget(windows.ISCSITarget{
		Portal: api.Portal{Address: "10.0.0.1"}, IQN: targetName, User: "chapuser", Secret: "chapsecret-1234",
	}))
	var said []string
	collect := func(err error) {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	run := func(h api.Host) {
		collect(h.SMB.Mount(ctx, alice(at("a"))))
		collect(h.SMB.Mount(ctx, alice("")))
		wrong := alice(at("b"))
		wrong.Password = "wrong-password-1"
		collect(h.SMB.Mount(ctx, wrong))
		collect(h.ISCSI.AddPortal(ctx, api.Portal{Address: "10.0.0.1"}))
		collect(h.ISCSI.Connect(ctx, chapLogin()))
		login := chapLogin()
		login.Secret = "wrong-secret-12"
		collect(h.ISCSI.Connect(ctx, login))
		login.Secret = "short-sec"
		collect(h.ISCSI.Connect(ctx, login))
		collect(h.ISCSI.SetMutualSecret(ctx, "mutual-secret-1"))
	}
	run(h)
	for _, call := range []string{"SMB.Create", "ISCSI.Login", "ISCSI.SetSharedSecret"} {
		r.machine.Inject(windows.Fault{Call: call, Action: windows.Fail, Errno: win32.ErrorGenFailure})
	}
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, at("a")))
	mustDo(t, h.SMB.Unmount(ctx, shareRemote, ""))
	run(r.host())
	text := strings.Join(said, "\n") + r.log.String()
	mustDo(t, filepath.Walk(r.state, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			data, _ := os.ReadFile(path)
			text += string(data)
		}
		return err
	}))
	for _, secret := range []string{smbPassword, "wrong-password-1", "chapsecret-1234", "wrong-secret-12", "short-sec", "mutual-secret-1"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is revealed", secret)
		}
	}
}
