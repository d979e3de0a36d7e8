package volumes

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// The tests of the files conformance_*_linux_test.go show behaviours of the
// kubelet; docs/reference/host-conformance.md lists which test shows which.

// A driver with VOLUME_MOUNT_GROUP gets the group, at staging and publishing, and the
// host does not change the files. Other drivers do not get it.
func TestGroup_isDelegated(t *testing.T) {
	for _, can := range []bool{true, false} {
		w, a := newServing(t, func(d *csidriver.Driver) {
			if can {
				mountGroups(d)
			}
		})
		w.object(func(spec *storagev1.CSIDriverSpec) { file := storagev1.FileFSGroupPolicy; spec.FSGroupPolicy = &file })
		w.ensured("a")
		target := w.mount(w.create(withGroup(pod("web", "a"), 4321)))["data"].Path
		want := map[bool]string{true: "4321"}[can]
		staged := one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetMount().GetVolumeMountGroup()
		published := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeCapability().GetMount().GetVolumeMountGroup()
		if staged != want || published != want {
			t.Errorf("can %v: staged with %q, published with %q", can, staged, published)
		}
		if changed := w.groupOf(target) == 4321; changed == can {
			t.Errorf("can %v: changed by the host %v", can, changed)
		}
	}
}

// Each policy of a driver's object changes the group or does not, and a changed
// policy applies to the next pod.
func TestGroup_followsThePolicy(t *testing.T) {
	none, file, byType := storagev1.NoneFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	changes := func(policy storagev1.FSGroupPolicy) bool { return policy != none }
	for _, policies := range [][2]storagev1.FSGroupPolicy{
		{none, file}, {none, byType}, {file, none}, {file, byType}, {byType, none}, {byType, file},
	} {
		w, _ := newServing(t)
		w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" })
		for i, policy := range policies {
			w.object(func(spec *storagev1.CSIDriverSpec) { spec.FSGroupPolicy = &policy })
			group := 4321 + i
			p := w.create(withGroup(pod("web", "a"), int64(group)))
			if got := w.groupOf(w.mount(p)["data"].Path) == group; got != changes(policy) {
				t.Errorf("%v: with %s the group was changed: %v", policies, policy, got)
			}
			w.unmount(p)
		}
	}
}

// After a restart, a pod keeps its volume although the claim is being deleted.
func TestRestart_aTerminatingClaimStaysMounted(t *testing.T) {
	w, _ := newServing(t)
	key := w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.put(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		now := metav1.Now()
		pvc.DeletionTimestamp = &now
		return tx.Claims().Put(key, pvc)
	})
	before := len(w.driver.Calls())
	w.serving("boot-1", "")
	w.mount(p)
	if calls := w.driver.Calls()[before:]; len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
	w.refused(w.create(pod("late", "a")), "is being deleted")
	w.unmount(p)
	w.isIdleWithout("late")
}

// isIdleWithout is isIdle but for pods that never had anything.
func (w *world) isIdleWithout(pods ...string) {
	w.t.Helper()
	w.put(func(tx *store.Tx) error {
		for _, name := range pods {
			if err := tx.Pods().Delete("ns/" + name); err != nil {
				return err
			}
		}
		return nil
	})
	w.isIdle()
}

// Staging is retried after any failure while the pod is desired. A volume is unstaged
// after any attempt: the kubelet does not do that after a final error.
func TestStage_isRepeatedAndUndone(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.InvalidArgument, codes.DeadlineExceeded} {
		for _, succeeds := range []bool{true, false} {
			w, a := newServing(t)
			if code != codes.OK {
				a.fail = failures("NodeStageVolume", code, 3)
			}
			w.ensured("a")
			p := w.create(pod("web", "a"))
			for range 3 {
				if _, err := w.manager.MountPod(t.Context(), p); (err == nil) != (code == codes.OK) {
					t.Fatalf("%s: %v", code, err)
				}
			}
			if succeeds {
				w.mount(p)
			}
			w.unmount(p)
			if n := w.driver.Count("NodeUnstageVolume"); n != 1 {
				t.Errorf("%s: unstaged %d times", code, n)
			}
			w.isIdle()
		}
	}
}

// A second pod stages again, however the unstaging for the
// first one ended.
func TestUnstage_aSecondPodStagesAgain(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.InvalidArgument, codes.DeadlineExceeded} {
		w, a := newServing(t)
		if code != codes.OK {
			a.fail = failures("NodeUnstageVolume", code, 1)
		}
		w.ensured("a")
		first, second := w.create(pod("one", "a")), w.create(pod("two", "a"))
		w.mount(first)
		if err := w.manager.UnmountPod(t.Context(), first); (err == nil) != (code == codes.OK) {
			t.Fatalf("%s: %v", code, err)
		}
		w.mount(second)
		w.unmount(first) // nothing is left for it to wait for
		w.unmount(second)
		if staged, unstaged := w.driver.Count("NodeStageVolume"), w.driver.Count("NodeUnstageVolume"); staged != 2 || unstaged < 2 {
			t.Errorf("%s: staged %d times, unstaged %d times", code, staged, unstaged)
		}
		w.isIdle()
	}
}

// A failed unstaging is retried until it succeeds, even if the driver does not stage any
// more.
func TestUnstage_alsoWithoutTheCapability(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.driver.Node = nil
	w.serve() // another version of it
	w.unmount(p)
	if n := w.driver.Count("NodeUnstageVolume"); n != 1 {
		t.Errorf("unstaged %d times", n)
	}
	w.isIdle()
}

// The last pod of a volume waits until the volume is unstaged.
func TestUnmountPod_continuesAnUnfinishedUnstaging(t *testing.T) {
	w, a := newServing(t)
	a.fail = failures("NodeUnstageVolume", codes.Internal, 2)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	for range 2 {
		if err := w.manager.UnmountPod(t.Context(), p); err == nil {
			t.Fatal("unmounted")
		}
	}
	w.unmount(p)
	w.isIdle()
}

// stagesATmpfs mounts at staging and binds at publishing, as drivers for disks do.
func stagesATmpfs(d *csidriver.Driver) {
	d.After = func(_ context.Context, _ string, request any) error {
		switch r := request.(type) {
		case *csi.NodeStageVolumeRequest:
			if !isMounted(r.GetStagingTargetPath()) {
				return unix.Mount("holdfast-test", r.GetStagingTargetPath(), "tmpfs", 0, "size=64k")
			}
		case *csi.NodeUnstageVolumeRequest:
			for unix.Unmount(r.GetStagingTargetPath(), 0) == nil {
				continue
			}
		}
		return nil
	}
	d.Publish = func(r *csi.NodePublishVolumeRequest) error {
		if err := os.MkdirAll(r.GetTargetPath(), 0o755); err != nil || isMounted(r.GetTargetPath()) {
			return err
		}
		if r.GetStagingTargetPath() == "" {
			return mountTmpfs(r)
		}
		return unix.Mount(r.GetStagingTargetPath(), r.GetTargetPath(), "", unix.MS_BIND, "")
	}
}

func TestUnstage_namesOtherMounts(t *testing.T) {
	w, _ := newServing(t, stagesATmpfs)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	target := w.mount(p)["data"].Path
	foreign := t.TempDir()
	if err := unix.Mount(target, foreign, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := w.manager.UnmountPod(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), foreign) || w.driver.Count("NodeUnstageVolume") != 0 {
		t.Errorf("got %v, %d calls", err, w.driver.Count("NodeUnstageVolume"))
	}
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	w.unmount(p)
	w.isIdle()
}

func TestMountPod_refusesAForeignMount(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	target := w.manager.options.Paths.Publish(p.UID, w.bound("ns/a").volume.Name)
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	mountAt(t, target)
	_, err := w.manager.MountPod(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), target) || w.driver.Count("NodePublishVolume") != 0 {
		t.Errorf("got %v", err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	w.mount(p)
	mountAt(t, target)
	if _, err := w.manager.MountPod(t.Context(), p); err == nil || !strings.Contains(err.Error(), "mounted over the volume") {
		t.Errorf("over the volume: %v", err)
	}
}

func mountAt(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mount("foreign", path, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
}

func TestMountPod_publishesAgainAfterAForeignUnmount(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	target := w.mount(p)["data"].Path
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	w.mount(p)
	if !isMounted(target) {
		t.Error("it is not mounted")
	}
}

func TestMountPod_refusesAVolumeOfAnotherTopology(t *testing.T) {
	w, _ := newServing(t)
	w.client.Node.Topology = map[string]string{"zone": "b"}
	w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}},
		}}}
	})
	w.refused(w.create(pod("web", "a")), "zone In a")
}

// One claim in two volumes of a pod is one mount; it is writable if either is.
func TestMountPod_oneClaimInTwoVolumes(t *testing.T) {
	w, a := newServing(t)
	w.ensured("a")
	p := pod("web", "a")
	second := p.Spec.Volumes[0].DeepCopy()
	second.Name, second.PersistentVolumeClaim.ReadOnly = "also", true
	p.Spec.Volumes = append(p.Spec.Volumes, *second)
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "also", MountPath: "/also"})
	mounted := w.mount(w.create(p))
	if one[*csi.NodePublishVolumeRequest](t, a).GetReadonly() || mounted["data"].ReadOnly || !mounted["also"].ReadOnly || mounted["also"].Path != mounted["data"].Path {
		t.Errorf("mounted %+v", mounted)
	}
	w.unmount(p)
	w.isIdle()
}

func TestMountPod_readOnlyAndWritableTogether(t *testing.T) {
	w, a := newServing(t)
	w.ensured("a")
	reader := pod("reader", "a")
	reader.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.mount(w.create(reader))
	w.mount(w.create(pod("writer", "a")))
	got := requests[*csi.NodePublishVolumeRequest](a)
	if len(got) != 2 || !got[0].GetReadonly() || got[1].GetReadonly() || w.driver.Count("NodeStageVolume") != 1 {
		t.Errorf("published %v", got)
	}
}

func TestMountPod_refusesADeviceWhereTheClaimIsADirectory(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	p := pod("web", "a")
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
	w.refused(w.create(p), "volumeMode Filesystem")
}

// The replacement of a driver during a call is not a failure.
func TestMountPod_theSuccessorOfADriverContinues(t *testing.T) {
	w, a := newServing(t)
	w.ensured("a")
	old := w.client
	a.fail = func(rpc string, number int) error {
		if rpc == "NodePublishVolume" && number == 1 {
			w.registry.set("d.example", &plugins.Driver{Name: old.Name, Client: old.Client, Node: old.Node})
			return csidriver.Fail(codes.Unavailable, "going away")
		}
		return nil
	}
	p := w.create(pod("web", "a"))
	w.mount(p)
	if n := w.driver.Count("NodePublishVolume"); n != 2 {
		t.Errorf("published %d times", n)
	}
	w.unmount(p)
	w.isIdle()
}

// Volumes whose drivers ask for it are published again; an error of that call does
// not affect the pod.
func TestRepublish_keepsTheMountAfterAFailure(t *testing.T) {
	w, a := newServing(t)
	w.object(func(spec *storagev1.CSIDriverSpec) { yes := true; spec.RequiresRepublish = &yes })
	w.ensured("a")
	p := w.create(pod("web", "a"))
	if _, desired, err := w.manager.nextRepublish("d.example"); err != nil || desired {
		t.Errorf("wanted without a mount: %v, %v", desired, err)
	}
	before := time.Now()
	target := w.mount(p)["data"].Path
	next, desired, err := w.manager.nextRepublish("d.example")
	if err != nil || !desired || next.Sub(before) < 60*time.Second || time.Until(next) > 90*time.Second {
		t.Errorf("next in %v, %v, %v", time.Until(next), desired, err)
	}
	if err := w.manager.republish(t.Context(), "d.example"); err != nil || w.driver.Count("NodePublishVolume") != 1 {
		t.Errorf("published before it is due: %v", err)
	}
	for _, code := range []codes.Code{codes.InvalidArgument, codes.OK} {
		w.manager.node.due.times[target] = time.Now()
		a.fail = nil
		if code != codes.OK {
			a.fail = failures("NodePublishVolume", code, 2)
		}
		w.driver.Publish = func(*csi.NodePublishVolumeRequest) error { return nil }
		if err := w.manager.republish(t.Context(), "d.example"); (err == nil) != (code == codes.OK) {
			t.Errorf("%s: %v", code, err)
		}
		if !isMounted(target) || w.uses()[0].Targets[target].Phase != store.PhaseDone {
			t.Errorf("%s: it is not mounted any more", code)
		}
	}
	if first, again := requests[*csi.NodePublishVolumeRequest](a)[0], requests[*csi.NodePublishVolumeRequest](a)[2]; first.String() != again.String() {
		t.Errorf("published with\n%v, then with\n%v", first, again)
	}
	w.driver.Publish = mountTmpfs
	w.unmount(p)
	w.isIdle()
	if _, desired, _ := w.manager.nextRepublish("d.example"); desired {
		t.Error("wanted after the pod")
	}
}

// A raw block volume is the device that the driver put at the target path.
func TestBlock_isADeviceAtItsPath(t *testing.T) {
	w, a := newServing(t, func(d *csidriver.Driver) {
		d.Publish = func(r *csi.NodePublishVolumeRequest) error {
			return unix.Mknod(r.GetTargetPath(), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) //nolint:gosec // a small number
		}
		d.Unpublish = func(r *csi.NodeUnpublishVolumeRequest) error {
			if err := os.Remove(r.GetTargetPath()); err != nil && !os.IsNotExist(err) {
				return err
			}
			return nil
		}
	})
	block := corev1.PersistentVolumeBlock
	w.ensured("a", func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.VolumeMode = &block })
	p := pod("web", "a")
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
	target := w.mount(w.create(p))["data"]
	if !target.Block || !isBlockDevice(target.Path) || one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetBlock() == nil {
		t.Errorf("mounted %+v", target)
	}
	before := len(w.driver.Calls())
	w.serving("boot-1", "")
	w.mount(p)
	if calls := w.driver.Calls()[before:]; len(calls) > 0 {
		t.Errorf("after a restart: %v", calls)
	}
	w.unmount(p)
	w.isIdle()
	if _, err := os.Stat(filepath.Dir(target.Path)); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
}
