package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestMountPod_andBack(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	p := pod("a", "data")
	mounted := w.mount(p)
	want := filepath.Join(w.root, "pods/pod-a/volumes/kubernetes.io~csi/pvc-uid-data/mount")
	if mounted["data"] != (Mounted{Path: want}) {
		t.Errorf("mounted is %+v, want %s", mounted, want)
	}
	w.unmount(p)
	w.calls("CreateVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
	w.isIdle()
}

func TestMountPod_attachesWhenTheDriverDoes(t *testing.T) {
	attaching := func(d *csidriver.Driver) {
		d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	t.Run("it does", func(t *testing.T) {
		w := newWorld(t, attaching)
		var staged map[string]string
		w.driver.Before = func(_ context.Context, _ string, request any) error {
			if stage, ok := request.(*csi.NodeStageVolumeRequest); ok {
				staged = stage.GetPublishContext()
			}
			return nil
		}
		w.ensured("data")
		p := pod("a", "data")
		w.mount(p)
		w.unmount(p)
		w.calls("CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume",
			"NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume")
		if staged["device"] != "1" {
			t.Errorf("the publish context is %v", staged)
		}
		w.isIdle()
	})
	t.Run("its object says it need not", func(t *testing.T) {
		w := newWorld(t, attaching)
		no := false
		w.put(func(tx *store.Tx) error {
			return tx.Drivers().Put("d.example", &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
		})
		w.ensured("data")
		p := pod("a", "data")
		w.mount(p)
		w.unmount(p)
		if w.driver.Count("ControllerPublishVolume") != 0 {
			t.Error("it was attached")
		}
	})
}

func TestMountPod_withoutStaging(t *testing.T) {
	w := newWorld(t, func(d *csidriver.Driver) { d.Node = nil })
	w.ensured("data")
	p := pod("a", "data")
	w.mount(p)
	w.unmount(p)
	w.calls("CreateVolume", "NodePublishVolume", "NodeUnpublishVolume")
	w.isIdle()
}

func TestMountPod_twoPodsShareTheStaging(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	a, b := pod("a", "data"), pod("b", "data")
	w.mount(a)
	w.mount(b)
	w.unmount(a)
	if w.driver.Count("NodeUnstageVolume") != 0 {
		t.Error("it was unstaged while pod b uses it")
	}
	w.unmount(b)
	w.calls("CreateVolume", "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
	w.isIdle()
}

func TestMountPod_refusesASecondPodOfReadWriteOncePod(t *testing.T) {
	w := newWorld(t)
	w.ensured("data", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	a, b := pod("a", "data"), pod("b", "data")
	w.mount(a)
	if _, err := w.manager.MountPod(t.Context(), b); err == nil || !strings.Contains(err.Error(), "ReadWriteOncePod, and pod ns/a uses it") {
		t.Errorf("got %v", err)
	}
	w.unmount(b)
	w.unmount(a)
	w.isIdle()
}

func TestMountPod_leavesUnusedVolumesOut(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	p := pod("a", "data")
	p.Spec.Containers[0].VolumeMounts = nil
	if mounted := w.mount(p); len(mounted) != 0 {
		t.Errorf("mounted is %v", mounted)
	}
	w.unmount(p)
	w.calls("CreateVolume")
}

func inlinePod() *corev1.Pod {
	p := pod("a", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "d.example", VolumeAttributes: map[string]string{"size": "1Mi", "csi.storage.k8s.io/pod.name": "forged"},
	}}
	return p
}

func TestMountPod_inline(t *testing.T) {
	w := newWorld(t)
	if _, err := w.manager.MountPod(t.Context(), inlinePod()); err == nil || !strings.Contains(err.Error(), "serves no inline volumes") {
		t.Errorf("without a CSIDriver object: %v", err)
	}
	w.put(func(tx *store.Tx) error {
		return tx.Drivers().Put("d.example", &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		}})
	})
	var got *csi.NodePublishVolumeRequest
	w.driver.Before = func(_ context.Context, _ string, request any) error {
		if publish, ok := request.(*csi.NodePublishVolumeRequest); ok {
			got = publish
		}
		return nil
	}
	w.mount(inlinePod())
	want := map[string]string{
		"size": "1Mi", "csi.storage.k8s.io/pod.name": "a", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "pod-a",
		"csi.storage.k8s.io/serviceAccount.name": "default", "csi.storage.k8s.io/ephemeral": "true",
	}
	if difference := cmp.Diff(want, got.GetVolumeContext()); difference != "" {
		t.Error(difference)
	}
	if handle := claim.InlineHandle("pod-a", "data"); got.GetVolumeId() != handle || got.GetStagingTargetPath() != "" {
		t.Errorf("the request is %v, want handle %s", got, handle)
	}
	w.unmount(inlinePod())
	w.calls("NodePublishVolume", "NodeUnpublishVolume")
	w.isIdle()
}

// Each call of mounting fails, before and after its effect, with a final error and with
// another. Unmounting then removes everything.
func TestMountPod_everyFailureIsUndone(t *testing.T) {
	for _, rpc := range []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"} {
		for _, code := range []codes.Code{codes.Internal, codes.InvalidArgument} {
			for when, after := range map[string]bool{"before": false, "after": true} {
				t.Run(rpc+"_"+code.String()+"_"+when, func(t *testing.T) {
					w := newWorld(t, func(d *csidriver.Driver) {
						d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
					})
					w.ensured("data")
					if after {
						w.driver.After = failing(rpc, code, 1)
					} else {
						w.driver.Before = failing(rpc, code, 1)
					}
					p := pod("a", "data")
					if _, err := w.manager.MountPod(t.Context(), p); err == nil {
						t.Fatal("it was mounted")
					}
					w.unmount(p)
					if rpc == "NodePublishVolume" && w.driver.Count("NodeUnpublishVolume") != 1 {
						t.Error("it was not unpublished after the failure")
					}
					w.isIdle()
				})
			}
		}
	}
}

func TestMountPod_repeatsUncertainCalls(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	w.driver.After = failing("NodeStageVolume", codes.Unavailable, 1)
	w.driver.Before = failing("NodePublishVolume", codes.Aborted, 1)
	p := pod("a", "data")
	w.mount(p)
	w.unmount(p)
	w.calls("CreateVolume", "NodeStageVolume", "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
	w.isIdle()
}

func TestMountPod_doesNotBelieveADriverThatMountedNothing(t *testing.T) {
	for name, publish := range map[string]func(*csi.NodePublishVolumeRequest) error{
		"nothing is mounted at":        func(r *csi.NodePublishVolumeRequest) error { return os.Mkdir(r.GetTargetPath(), 0o755) },
		"the target path is not there": func(*csi.NodePublishVolumeRequest) error { return nil },
		"is not a directory":           func(r *csi.NodePublishVolumeRequest) error { return os.WriteFile(r.GetTargetPath(), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(d *csidriver.Driver) { d.Publish = publish })
			w.ensured("data")
			p := pod("a", "data")
			if _, err := w.manager.MountPod(t.Context(), p); !errors.Is(err, claim.ErrDriverFailed) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
			w.unmount(p)
			w.isIdle()
		})
	}
}

func TestUnmountPod_repeatsFinalErrorsToo(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	p := pod("a", "data")
	w.mount(p)
	w.driver.Before = failing("NodeUnpublishVolume", codes.Internal, 1)
	w.unmount(p)
	w.isIdle()
}

func TestUnmountPod_neverRemovesAMountPoint(t *testing.T) {
	w := newWorld(t, func(d *csidriver.Driver) { d.Unpublish = func(*csi.NodeUnpublishVolumeRequest) error { return nil } })
	w.ensured("data")
	p := pod("a", "data")
	file := filepath.Join(w.mount(p)["data"].Path, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.manager.UnmountPod(t.Context(), p); err == nil || !strings.Contains(err.Error(), "its target path is not free") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if w.driver.Count("NodeUnstageVolume") != 0 {
		t.Error("it was unstaged while it is published")
	}
	w.driver.Unpublish = unmountTmpfs
	w.restart("boot-1", "")
	w.recoverAll()
	w.isIdle()
}

// TestRecover_undoesTheUsesOfADeadProcess stops at each point of the way there
// and back; the next process undoes all of it, on this boot and after a reboot.
func TestRecover_undoesTheUsesOfADeadProcess(t *testing.T) {
	points := []string{
		"attach/intent", "attach/called", "stage/intent", "stage/called", "publish/intent", "publish/called", "",
		"unpublish/intent", "unpublish/called", "unstage/intent", "unstage/called", "detach/intent", "detach/called",
	}
	for _, boot := range []string{"boot-1", "boot-2"} {
		for _, point := range points {
			t.Run(boot+"_"+strings.ReplaceAll(point, "/", "_"), func(t *testing.T) {
				w := newWorld(t, func(d *csidriver.Driver) {
					d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
				})
				key := w.ensured("data")
				terms := ""
				if point != "" {
					terms = "host/" + point + "=error"
				}
				w.restart("boot-1", terms)
				p := pod("a", "data")
				_, mountError := w.manager.MountPod(t.Context(), p)
				if mountError == nil && point != "" {
					if err := w.manager.UnmountPod(t.Context(), p); err == nil {
						t.Fatal("the point was not passed")
					}
				}
				w.restart(boot, "")
				w.recoverAll()
				w.isIdle()
				if err := w.deleteClaim(key); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestRecover_waitsForADriverThatIsNotRegistered(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	w.mount(pod("a", "data"))
	w.restart("boot-1", "")
	w.registry.set("d.example", nil)
	w.recoverAll()
	if uses, pods, _, _, _ := w.records(); uses != 1 || pods != 1 {
		t.Fatalf("%d uses, %d pods: the record was given up", uses, pods)
	}
	w.registry.set("d.example", w.client)
	w.recoverAll()
	w.isIdle()
}

func TestMountPod_undoesTheUseOfAnEarlierBootFirst(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	w.mount(pod("a", "data"))
	w.restart("boot-2", "")
	b := pod("b", "data")
	w.mount(b)
	w.calls("CreateVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "NodeStageVolume", "NodePublishVolume")
	w.unmount(b)
	w.unmount(pod("a", "data"))
	w.isIdle()
}

func TestStep_endsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	ctx, cancel := context.WithCancel(t.Context())
	w.driver.Before = func(call context.Context, name string, _ any) error {
		if name != "NodeStageVolume" {
			return nil
		}
		cancel()
		<-call.Done()
		return call.Err()
	}
	p := pod("a", "data")
	if _, err := w.manager.MountPod(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.unmount(p)
	if w.driver.Count("NodeUnstageVolume") != 1 {
		t.Error("what may have been staged was not unstaged")
	}
	w.isIdle()
}

func TestSetGroup(t *testing.T) {
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	for _, file := range []string{filepath.Join(directory, "sub", "file"), outside} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(directory, "link")); err != nil {
		t.Fatal(err)
	}
	if err := setGroup(t.Context(), directory, 4321, false, func() {}); err != nil {
		t.Fatal(err)
	}
	check := func(path string, group uint32, mode os.FileMode) {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat, _ := info.Sys().(*syscall.Stat_t)
		if stat.Gid != group || info.Mode()&(os.ModePerm|os.ModeSetgid) != mode {
			t.Errorf("%s has group %d and mode %v; want %d and %v", path, stat.Gid, info.Mode(), group, mode)
		}
	}
	check(filepath.Join(directory, "sub"), 4321, 0o770|os.ModeSetgid)
	check(filepath.Join(directory, "sub", "file"), 4321, 0o660)
	check(outside, 0, 0o600)
	// With OnRootMismatch, a root directory that fits vouches for everything below it.
	added := filepath.Join(directory, "added")
	if err := os.WriteFile(added, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(added, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := setGroup(t.Context(), directory, 4321, true, func() {}); err != nil {
		t.Fatal(err)
	}
	check(added, 0, 0o600)
}

func TestMountPod_emptyDirIsGoneAfterwards(t *testing.T) {
	w := newWorld(t)
	p := pod("a", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	path := w.mount(p)["data"].Path
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart("boot-1", "") // the process died
	w.recoverAll()
	w.isIdle()
}

func TestMountPod_saysThatAClaimIsMissing(t *testing.T) {
	w := newWorld(t)
	if _, err := w.manager.MountPod(t.Context(), pod("a", "nothing")); !errors.Is(err, ErrNoClaim) {
		t.Errorf("got %v", err)
	}
	now := metav1.Now()
	w.ensured("data")
	pvc := w.bound("ns/data").claim
	pvc.DeletionTimestamp = &now
	w.put(func(tx *store.Tx) error { return tx.Claims().Put("ns/data", pvc) })
	if _, err := w.manager.MountPod(t.Context(), pod("b", "data")); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("got %v", err)
	}
}

func TestMountPod_waitsForADriverThatRestarts(t *testing.T) {
	w := newWorld(t)
	w.ensured("data")
	w.registry.set("d.example", nil)
	p := pod("a", "data")
	if _, err := w.tryMount(p); err == nil || !Repeats(err) {
		t.Errorf("without the driver: %v", err)
	}
	w.registry.set("d.example", w.client)
	w.mount(p)
	w.unmount(p)
	w.isIdle()
}
