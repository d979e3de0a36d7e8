package volumes

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// sharing is a driver all of whose volumes are one filesystem to the kernel, as
// two mounts of one share are.
func sharing(d *csidriver.Driver) {
	var staged []string
	d.Before = func(_ context.Context, _ string, request any) error {
		switch request := request.(type) {
		case *csi.NodeStageVolumeRequest:
			path := request.GetStagingTargetPath()
			staged = append(staged, path)
			if len(staged) == 1 {
				return unix.Mount("share", path, "tmpfs", 0, "size=64k")
			}
			return unix.Mount(staged[0], path, "", unix.MS_BIND, "")
		case *csi.NodeUnstageVolumeRequest:
			for unix.Unmount(request.GetStagingTargetPath(), 0) == nil {
				continue
			}
		}
		return nil
	}
	d.Publish = func(request *csi.NodePublishVolumeRequest) error {
		if err := os.MkdirAll(request.GetTargetPath(), 0o755); err != nil {
			return err
		}
		return unix.Mount(request.GetStagingTargetPath(), request.GetTargetPath(), "", unix.MS_BIND, "")
	}
}

func TestUnstage_volumesOfOneFilesystemDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t, sharing)
	t.Cleanup(w.unmountAll)
	w.serving("boot-1", "")
	w.ensured("a")
	w.ensured("b")
	one, two := w.create(pod("one", "a")), w.create(pod("two", "b"))
	w.mount(one)
	w.mount(two)
	w.unmount(one)
	w.unmount(two)
	w.isIdle()
}

func TestUnstage_waitsForForeignMountsOfTheVolume(t *testing.T) {
	w := newWorld(t, sharing)
	t.Cleanup(w.unmountAll)
	w.serving("boot-1", "")
	w.ensured("a")
	p := w.create(pod("one", "a"))
	target := w.mount(p)["data"].Path
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(target, elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, unix.MNT_DETACH) })
	if err := w.manager.UnmountPod(t.Context(), p); err == nil || !strings.Contains(err.Error(), elsewhere) {
		t.Errorf("got %v", err)
	}
	if err := unix.Unmount(elsewhere, 0); err != nil {
		t.Fatal(err)
	}
	w.unmount(p)
	w.isIdle()
}
