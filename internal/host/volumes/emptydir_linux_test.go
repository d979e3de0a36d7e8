package volumes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// A foreign mount in an emptyDir volume is not removed with it.
func TestEmptyDir_keepsAForeignMount(t *testing.T) {
	w := newWorld(t)
	p := pod("web", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	foreign := filepath.Join(w.mount(p)["data"].Path, "foreign")
	if err := errors.Join(os.Mkdir(foreign, 0o755), unix.Mount("foreign", foreign, "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(foreign, 0) }()
	file := filepath.Join(foreign, "data")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.manager.UnmountPod(t.Context(), p); err == nil || !strings.Contains(err.Error(), foreign) {
		t.Errorf("got %v; want an error that names the mount", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("it was removed: %v", err)
	}
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	w.unmount(p)
	w.isIdle()
}
