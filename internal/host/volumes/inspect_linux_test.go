package volumes

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// A mount outlives the daemon that serves it; only a system call that needs the
// daemon finds out.
func TestCheckMounts_findsADeadFilesystem(t *testing.T) {
	var daemon *csidriver.FUSE
	w, _ := newServing(t, func(d *csidriver.Driver) {
		d.Publish = func(r *csi.NodePublishVolumeRequest) (err error) {
			if err := os.MkdirAll(r.GetTargetPath(), 0o755); err != nil {
				return err
			}
			daemon, err = csidriver.MountFUSE(r.GetTargetPath())
			return err
		}
	})
	w.ensured("a")
	p := w.create(pod("web", "a"))
	target := w.mount(p)["data"].Path
	check := func() MountCheck {
		t.Helper()
		checks, err := w.manager.CheckMounts(t.Context(), "ns/web")
		if err != nil || len(checks) != 1 || checks[0].Path != target || checks[0].Volume != "data" || checks[0].Driver != "d.example" {
			t.Fatalf("%+v, %v", checks, err)
		}
		return checks[0]
	}
	if err := check().Err; err != nil {
		t.Errorf("it is alive: %v", err)
	}
	daemon.Kill()
	if err := check().Err; !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("it is dead: %v", err)
	}
	w.unmount(p)
	if checks, err := w.manager.CheckMounts(t.Context(), "ns/web"); err != nil || len(checks) != 0 {
		t.Errorf("of a pod that is gone: %+v, %v", checks, err)
	}
}

func TestCheckMounts_doesNotHang(t *testing.T) {
	m := &Manager{shared: new(shared)}
	release := make(chan struct{})
	hang := func() (struct{}, error) { <-release; return struct{}{}, nil }
	left, leave := context.WithCancel(t.Context())
	leave()
	_, _ = m.inspections.Do(left, "/hung", hang)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := m.inspect(ctx, "/hung", false); !errors.Is(err, errNoAnswer) {
		t.Errorf("got %v", err)
	}
	release <- struct{}{}
	if err := m.inspect(t.Context(), "/hung", false); errors.Is(err, errNoAnswer) {
		t.Errorf("after the answer: %v", err)
	}
}
