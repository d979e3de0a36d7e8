package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csiclient/csitest"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func (w *world) attachments() (all []*storagev1.VolumeAttachment) {
	w.t.Helper()
	if err := w.store.View(func(tx *store.Tx) (err error) {
		all, err = tx.Attachments().All()
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func attachRequired(required bool) func(*storagev1.CSIDriverSpec) {
	return func(spec *storagev1.CSIDriverSpec) { spec.AttachRequired = &required }
}

// CM-1: a driver whose object says that nothing is attached is not asked to.
func TestAttach_notForADriverWithoutAttachment(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.object(attachRequired(false))
	w.ensured("a")
	w.mount(w.create(pod("web", "a")))
	if n := w.driver.Count("ControllerPublishVolume"); n != 0 || len(w.attachments()) != 0 {
		t.Errorf("attached %d times, objects %v", n, w.attachments())
	}
}

// CM-2, CM-4: with and without the driver's object, a VolumeAttachment says
// where the volume is attached, for as long as it is.
func TestAttach_hasItsObject(t *testing.T) {
	for _, object := range []bool{true, false} {
		w, a := newServing(t, attaching)
		if object {
			w.object(attachRequired(true))
		}
		found := w.bound(w.ensured("a"))
		p := w.create(pod("web", "a"))
		w.mount(p)
		all := w.attachments()
		handle := found.volume.Spec.CSI.VolumeHandle
		if len(all) != 1 || all[0].Name != claim.AttachmentName(handle, "d.example", "here") || !all[0].Status.Attached ||
			all[0].Status.AttachmentMetadata["device"] != "1" || all[0].Spec.NodeName != "here" || *all[0].Spec.Source.PersistentVolumeName != found.volume.Name {
			t.Errorf("objects %+v", all)
		}
		if got := one[*csi.NodeStageVolumeRequest](t, a).GetPublishContext()["device"]; got != "1" {
			t.Errorf("staged with context %q", got)
		}
		w.remove(p)
		if all := w.attachments(); len(all) != 0 {
			t.Errorf("left: %+v", all)
		}
		w.isIdle()
	}
}

// CM-3, CM-98, CM-99: the claim of a generic ephemeral volume is attached, and
// counts against the limit, as any other.
func TestAttach_genericEphemeralVolumes(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.client.Node.MaxVolumes = 1
	p := pod("web", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	yes := true
	w.ensured("web-data", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: p.UID, Controller: &yes}}
	})
	w.ensured("b")
	other := w.create(pod("other", "b"))
	w.mount(w.create(p))
	if len(w.attachments()) != 1 {
		t.Errorf("objects %v", w.attachments())
	}
	w.refused(other, "takes 1 volumes")
	w.remove(p)
	w.mount(other)
	w.refused(w.create(p), "takes 1 volumes")
}

// A claim of the right name that was made by somebody else is not taken.
func TestEphemeral_aClaimOfAnotherIsNotAdopted(t *testing.T) {
	w, _ := newServing(t)
	p := pod("web", "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	w.ensured("web-data")
	w.refused(w.create(p), "was not made for this pod")
}

// CM-5: what was attached is detached, whatever the driver's object says by then.
func TestAttach_isUndoneAfterTheDriversObjectChanged(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.object(attachRequired(true))
	w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.object(attachRequired(false))
	w.remove(p)
	if n := w.driver.Count("ControllerUnpublishVolume"); n != 1 || len(w.attachments()) != 0 {
		t.Errorf("detached %d times, objects %v", n, w.attachments())
	}
	w.isIdle()
}

// CM-6: a pod that cannot be attached comes up when the driver's object says
// that it need not be.
func TestAttach_aPodComesUpWhenAttachmentIsNotNeededAnyMore(t *testing.T) {
	w, a := newServing(t, attaching)
	a.fail = failures("ControllerPublishVolume", codes.Internal, 100)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	if _, err := w.manager.MountPod(t.Context(), p); err == nil {
		t.Fatal("mounted")
	}
	all := w.attachments()
	if len(all) != 1 || all[0].Status.AttachError == nil || *all[0].Status.AttachError.ErrorCode != int32(codes.Internal) {
		t.Fatalf("objects %+v", all)
	}
	version := w.version()
	if _, err := w.manager.MountPod(t.Context(), p); err == nil || w.version() != version {
		t.Errorf("a failure that repeats writes each time (%v)", err)
	}
	w.object(attachRequired(false))
	w.mount(p)
	w.remove(p)
	w.isIdle()
}

// CM-97, CM-108: a volume too many waits and says why, before the driver is
// asked; a place that gets free is taken.
func TestLimit_isKeptBeforeTheDriverIsAsked(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.client.Node.MaxVolumes = 2
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		w.ensured(name)
		pods = append(pods, w.create(pod("pod-"+name, name)))
	}
	w.mount(pods[0])
	w.mount(pods[1])
	w.refused(pods[2], "takes 2 volumes")
	_, err := w.manager.MountPod(t.Context(), pods[2])
	var waiting *Waiting
	if !errors.As(err, &waiting) || len(waiting.On) != 2 || !errors.Is(err, ErrWaiting) {
		t.Errorf("waits for %+v", err)
	}
	w.remove(pods[0])
	w.mount(pods[2])
}

// CM-7, CM-8: a driver that can is given the group, at staging and publishing,
// and the host does nothing; another is not.
func TestGroup_isDelegated(t *testing.T) {
	for _, can := range []bool{true, false} {
		w, a := newServing(t, func(d *csitest.Driver) {
			if can {
				mountGroups(d)
			}
		})
		w.object(func(spec *storagev1.CSIDriverSpec) { file := storagev1.FileFSGroupPolicy; spec.FSGroupPolicy = &file })
		w.ensured("a")
		place := w.mount(w.create(withGroup(pod("web", "a"), 4321)))["data"].Path
		want := map[bool]string{true: "4321"}[can]
		staged := one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetMount().GetVolumeMountGroup()
		published := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeCapability().GetMount().GetVolumeMountGroup()
		if staged != want || published != want {
			t.Errorf("can %v: staged with %q, published with %q", can, staged, published)
		}
		if changed := w.groupOf(place) == 4321; changed == can {
			t.Errorf("can %v: changed by the host %v", can, changed)
		}
	}
}

// CM-9, CM-10, CM-11: each policy of a driver's object, and CM-12, CM-13, CM-14,
// CM-15, CM-16, CM-17: what a changed one does for the next pod.
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
			w.remove(p)
		}
	}
}

// CM-28: a restart takes nothing from a pod whose claim is being deleted.
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
	w.remove(p)
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

// CM-29, CM-30, CM-31, CM-32, CM-33: staging is tried again after any failure
// while the pod is wanted, and whatever was tried is unstaged when it is not:
// after a final error, too, which the kubelet leaves out.
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
			w.remove(p)
			if n := w.driver.Count("NodeUnstageVolume"); n != 1 {
				t.Errorf("%s: unstaged %d times", code, n)
			}
			w.isIdle()
		}
	}
}

// CM-34, CM-35, CM-36: a second pod stages again, however the unstaging for the
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
		w.remove(first) // nothing is left for it to wait for
		w.remove(second)
		if staged, unstaged := w.driver.Count("NodeStageVolume"), w.driver.Count("NodeUnstageVolume"); staged != 2 || unstaged < 2 {
			t.Errorf("%s: staged %d times, unstaged %d times", code, staged, unstaged)
		}
		w.isIdle()
	}
}

// A failed unstaging is tried again for the pod until it is done, and a driver
// that does not stage any more is asked to unstage what it had staged.
func TestUnstage_alsoWithoutTheCapability(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	w.mount(p)
	w.driver.Node = nil
	w.serve() // another version of it
	w.remove(p)
	if n := w.driver.Count("NodeUnstageVolume"); n != 1 {
		t.Errorf("unstaged %d times", n)
	}
	w.isIdle()
}

// An unfinished way back belongs to its last pod, which waits for its end.
func TestUnmountPod_goesOnWithAnUnfinishedUnstaging(t *testing.T) {
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
	w.remove(p)
	w.isIdle()
}

// stagesATmpfs mounts at staging and binds at publishing, as drivers for disks do.
func stagesATmpfs(d *csitest.Driver) {
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

func TestUnstage_namesWhoElseHasItMounted(t *testing.T) {
	w, _ := newServing(t, stagesATmpfs)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	place := w.mount(p)["data"].Path
	foreign := t.TempDir()
	if err := unix.Mount(place, foreign, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := w.manager.UnmountPod(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), foreign) || w.driver.Count("NodeUnstageVolume") != 0 {
		t.Errorf("got %v, %d calls", err, w.driver.Count("NodeUnstageVolume"))
	}
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	w.remove(p)
	w.isIdle()
}

func TestMountPod_refusesAMountOfSomebodyElse(t *testing.T) {
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

func TestMountPod_publishesAgainWhatSomebodyUnmounted(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	place := w.mount(p)["data"].Path
	if err := unix.Unmount(place, 0); err != nil {
		t.Fatal(err)
	}
	w.mount(p)
	if !isMounted(place) {
		t.Error("it is not mounted")
	}
}

func TestMountPod_refusesAVolumeOfAnotherPlace(t *testing.T) {
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
	w.remove(p)
	w.isIdle()
}

func TestMountPod_readOnlyAndWritableBesideEachOther(t *testing.T) {
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

// A driver that is replaced while it publishes fails nothing.
func TestMountPod_theSuccessorOfADriverGoesOn(t *testing.T) {
	w, a := newServing(t)
	w.ensured("a")
	old := w.client
	a.fail = func(rpc string, number int) error {
		if rpc == "NodePublishVolume" && number == 1 {
			w.registry.set("d.example", &plugins.Driver{Name: old.Name, Client: old.Client, Node: old.Node})
			return csitest.Fail(codes.Unavailable, "going away")
		}
		return nil
	}
	p := w.create(pod("web", "a"))
	w.mount(p)
	if n := w.driver.Count("NodePublishVolume"); n != 2 {
		t.Errorf("published %d times", n)
	}
	w.remove(p)
	w.isIdle()
}

// Volumes whose drivers ask for it are published again; what the answer is does
// not matter to the pod.
func TestRepublish_keepsTheMountWhateverTheAnswer(t *testing.T) {
	w, a := newServing(t)
	w.object(func(spec *storagev1.CSIDriverSpec) { yes := true; spec.RequiresRepublish = &yes })
	w.ensured("a")
	p := w.create(pod("web", "a"))
	if _, wanted, err := w.manager.NextRepublish(); err != nil || wanted {
		t.Errorf("wanted without a mount: %v, %v", wanted, err)
	}
	place := w.mount(p)["data"].Path
	next, wanted, err := w.manager.NextRepublish()
	if wait := time.Until(next); err != nil || !wanted || wait < 59*time.Second || wait > 90*time.Second {
		t.Errorf("next in %v, %v, %v", wait, wanted, err)
	}
	if err := w.manager.Republish(t.Context()); err != nil || w.driver.Count("NodePublishVolume") != 1 {
		t.Errorf("published before it is due: %v", err)
	}
	for _, code := range []codes.Code{codes.InvalidArgument, codes.OK} {
		w.manager.node.due.times[place] = time.Now()
		a.fail = nil
		if code != codes.OK {
			a.fail = failures("NodePublishVolume", code, 2)
		}
		w.driver.Publish = func(*csi.NodePublishVolumeRequest) error { return nil }
		if err := w.manager.Republish(t.Context()); (err == nil) != (code == codes.OK) {
			t.Errorf("%s: %v", code, err)
		}
		if !isMounted(place) || w.uses()[0].Targets[place].Phase != store.PhaseDone {
			t.Errorf("%s: it is not mounted any more", code)
		}
	}
	if first, again := requests[*csi.NodePublishVolumeRequest](a)[0], requests[*csi.NodePublishVolumeRequest](a)[2]; first.String() != again.String() {
		t.Errorf("published with\n%v, then with\n%v", first, again)
	}
	w.driver.Publish = mountTmpfs
	w.remove(p)
	w.isIdle()
	if _, wanted, _ := w.manager.NextRepublish(); wanted {
		t.Error("wanted after the pod")
	}
}

// selinux makes the machine one that labels its files.
func (w *world) selinux() {
	w.manager.node.selinux = func() bool { return true }
	w.object(func(spec *storagev1.CSIDriverSpec) { yes := true; spec.SELinuxMount = &yes })
}

func podWithLabel(name, level string, policy corev1.PodSELinuxChangePolicy) *corev1.Pod {
	p := pod(name, "a")
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
	if level == "" {
		p.Spec.SecurityContext.SELinuxOptions = nil
	}
	if policy != "" {
		p.Spec.SecurityContext.SELinuxChangePolicy = &policy
	}
	return p
}

// CM-48, CM-49, CM-52, CM-53, CM-54, CM-55, CM-56: which pods' label becomes a
// mount option.
func TestSELinux_theLabelIsAMountOption(t *testing.T) {
	const level = "s0:c1,c2"
	option := `context="system_u:object_r:container_file_t:s0:c1,c2"`
	for _, test := range []struct {
		name      string
		mode      corev1.PersistentVolumeAccessMode
		level     string
		policy    corev1.PodSELinuxChangePolicy
		options   []string
		supported bool
		want      []string
	}{
		{"ReadWriteOncePod", corev1.ReadWriteOncePod, level, "", nil, true, []string{option}},
		{"beside other options", corev1.ReadWriteOncePod, level, "", []string{"noatime"}, true, []string{"noatime", option}},
		{"ReadWriteOnce", corev1.ReadWriteOnce, level, "", nil, true, []string{option}},
		{"the policy MountOption", corev1.ReadWriteOnce, level, corev1.SELinuxChangePolicyMountOption, nil, true, []string{option}},
		{"the policy Recursive", corev1.ReadWriteOnce, level, corev1.SELinuxChangePolicyRecursive, nil, true, nil},
		{"a pod without a label", corev1.ReadWriteOncePod, "", "", nil, true, nil},
		{"a driver that does not say so", corev1.ReadWriteOncePod, level, "", nil, false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, a := newServing(t)
			w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) {
				pv.Spec.AccessModes, pv.Spec.MountOptions = []corev1.PersistentVolumeAccessMode{test.mode}, test.options
			})
			w.selinux()
			if !test.supported {
				w.object(func(*storagev1.CSIDriverSpec) {})
			}
			w.mount(w.create(podWithLabel("web", test.level, test.policy)))
			staged := one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetMount().GetMountFlags()
			published := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeCapability().GetMount().GetMountFlags()
			if !slices.Equal(staged, test.want) || !slices.Equal(published, test.want) {
				t.Errorf("staged with %v, published with %v, want %v", staged, published, test.want)
			}
		})
	}
}

// CM-58, CM-59, CM-60, CM-61, CM-62: pods with one label share what is staged;
// one with another waits until the volume was unstaged.
func TestSELinux_anotherLabelWaits(t *testing.T) {
	recursive := corev1.SELinuxChangePolicyRecursive
	for _, test := range []struct {
		name          string
		mode          corev1.PersistentVolumeAccessMode
		first, second *corev1.Pod
		shared        bool
	}{
		{"the same", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c1", ""), true},
		{"another", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c2", ""), false},
		{"another, ReadWriteOncePod", corev1.ReadWriteOncePod, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c2", ""), false},
		{"then relabelled", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c1", recursive), false},
		{"relabelled before", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", recursive), podWithLabel("two", "s0:c1", ""), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, _ := newServing(t)
			w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) {
				pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{test.mode}
			})
			w.selinux()
			w.create(test.first)
			w.create(test.second)
			w.mount(test.first)
			_, err := w.manager.MountPod(t.Context(), test.second)
			if (err == nil) != test.shared || err != nil && !errors.Is(err, ErrWaiting) {
				t.Errorf("the second: %v", err)
			}
			w.remove(test.first)
			w.mount(test.second)
			if n := w.driver.Count("NodeStageVolume"); (n == 1) != test.shared {
				t.Errorf("staged %d times", n)
			}
		})
	}
}

func TestSELinux_containersMustAgree(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	w.selinux()
	p := podWithLabel("web", "s0:c1", "")
	p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
	p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c9"}}
	w.refused(w.create(p), "Recursive")
}

// A raw block volume is the device that the driver put at the target path.
func TestBlock_isADeviceAtItsPath(t *testing.T) {
	w, a := newServing(t, func(d *csitest.Driver) {
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
	place := w.mount(w.create(p))["data"]
	if !place.Block || !isBlockDevice(place.Path) || one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetBlock() == nil {
		t.Errorf("mounted %+v", place)
	}
	before := len(w.driver.Calls())
	w.serving("boot-1", "")
	w.mount(p)
	if calls := w.driver.Calls()[before:]; len(calls) > 0 {
		t.Errorf("after a restart: %v", calls)
	}
	w.remove(p)
	w.isIdle()
	if _, err := os.Stat(filepath.Dir(place.Path)); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
}
