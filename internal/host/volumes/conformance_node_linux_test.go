package volumes

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// asked keeps the requests that a driver got.
type asked struct {
	mu   sync.Mutex
	all  []proto.Message
	fail func(rpc string, number int) error // number of calls of this kind, from 1
	seen map[string]int
}

func (a *asked) before(_ context.Context, rpc string, request any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, proto.Clone(request.(proto.Message)))
	a.seen[rpc]++
	if a.fail != nil {
		return a.fail(rpc, a.seen[rpc])
	}
	return nil
}

// requests are those of one kind.
func requests[T proto.Message](a *asked) (found []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, request := range a.all {
		if is, ok := request.(T); ok {
			found = append(found, is)
		}
	}
	return found
}

// one is the only request of a kind.
func one[T proto.Message](t *testing.T, a *asked) T {
	t.Helper()
	found := requests[T](a)
	if len(found) != 1 {
		t.Fatalf("%d requests, want one", len(found))
	}
	return found[0]
}

// newServing is a host that serves, with a driver whose requests are kept.
func newServing(t *testing.T, change ...func(*csidriver.Driver)) (*world, *asked) {
	t.Helper()
	a := &asked{seen: map[string]int{}}
	w := newWorld(t, append([]func(*csidriver.Driver){func(d *csidriver.Driver) { d.Before = a.before }}, change...)...)
	t.Cleanup(w.unmountAll)
	w.serving("boot-1", "")
	return w, a
}

// unmountAll removes what the test driver mounted, as a reboot does.
func (w *world) unmountAll() {
	mounts, err := w.manager.readMountTable(w.root)
	if err != nil {
		w.t.Error(err)
	}
	for path := range mounts {
		for unix.Unmount(path, 0) == nil {
			continue
		}
	}
}

func attaching(d *csidriver.Driver) {
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
}

func mountGroups(d *csidriver.Driver) {
	d.Node = append(d.Node, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
}

// inline is a pod with inline volumes of these names.
func inline(name string, volumes ...string) *corev1.Pod {
	p := pod(name, "")
	p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = nil, nil
	for _, volume := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d.example"}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/" + volume})
	}
	return p
}

func ephemeral(spec *storagev1.CSIDriverSpec) {
	spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}
}

func withGroup(p *corev1.Pod, group int64) *corev1.Pod {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	return p
}

func (w *world) groupOf(path string) int {
	w.t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		w.t.Fatal(err)
	}
	group, _ := groupOf(info)
	return group
}

// The driver receives whether a volume is ephemeral in the volume context.
func TestInline_theVolumeContextSaysThatItIsEphemeral(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	w.ensured("a")
	w.mount(w.create(inline("one", "scratch")))
	if got := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeContext()[claim.Ephemeral]; got != "true" {
		t.Errorf("an inline volume has %s=%q", claim.Ephemeral, got)
	}
	w.mount(w.create(pod("two", "a")))
	if got := requests[*csi.NodePublishVolumeRequest](a)[1].GetVolumeContext()[claim.Ephemeral]; got != "false" {
		t.Errorf("a claim's volume has %s=%q", claim.Ephemeral, got)
	}
}

// An inline volume is only published and unpublished, even if the driver attaches and
// stages.
func TestInline_isPublishedAndUnpublishedOnly(t *testing.T) {
	w, _ := newServing(t, attaching)
	w.object(ephemeral)
	p := w.create(inline("one", "scratch"))
	w.mount(p)
	w.unmount(p)
	w.calls("NodePublishVolume", "NodeUnpublishVolume")
	w.isIdle()
}

// With the default policy, the files of an inline volume get the pod's
// group if the volume names a filesystem.
func TestInline_defaultPolicyNeedsAFilesystemType(t *testing.T) {
	for _, kind := range []string{"", "ext4"} {
		w, _ := newServing(t)
		w.object(ephemeral)
		p := withGroup(inline("one", "scratch"), 4321)
		p.Spec.Volumes[0].CSI.FSType = &kind
		target := w.mount(w.create(p))["scratch"].Path
		if got := w.groupOf(target); (got == 4321) != (kind != "") {
			t.Errorf("with type %q the group is %d", kind, got)
		}
		w.unmount(p)
	}
}

// The handle is made from the pod and the volume's name alone.
func TestInline_theHandleIsTheKubelets(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	p := w.create(inline("one", "scratch"))
	w.mount(p)
	w.unmount(p)
	const want = "csi-d06fc0711a9b97aca931c3909943a6ead7c67f021384de1d483657a8cbba6cb2" // sha256 of "pod-onescratch"
	if got := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeId(); got != want {
		t.Errorf("published as %s, want %s", got, want)
	}
	if got := one[*csi.NodeUnpublishVolumeRequest](t, a).GetVolumeId(); got != want {
		t.Errorf("unpublished as %s", got)
	}
}

// The host mounts inline volumes, and rejects kinds of volumes that it does not know.
func TestInline_isAKindOfVolumeOthersAreNot(t *testing.T) {
	w, _ := newServing(t)
	w.object(ephemeral)
	p := inline("one", "scratch", "other")
	p.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}
	mounted, err := w.manager.MountPod(t.Context(), w.create(p))
	if err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("got %v", err)
	}
	if mounted["scratch"].Path == "" {
		t.Error("the inline volume is not mounted")
	}
	w.unmount(p)
	w.isIdle()
}

// After a restart, an inline volume is unmounted according to its record, even if the
// pod does not exist any more.
func TestInline_isTakenAwayAfterARestart(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	p := w.create(inline("one", "scratch"))
	target := w.mount(p)["scratch"].Path
	w.put(func(tx *store.Tx) error { return tx.Pods().Delete(store.KeyOf(p)) })
	w.serving("boot-1", "")
	if err := w.undoLeftovers(); err != nil {
		t.Fatal(err)
	}
	request := one[*csi.NodeUnpublishVolumeRequest](t, a)
	if request.GetTargetPath() != target || request.GetVolumeId() != claim.InlineHandle(p.UID, "scratch") {
		t.Errorf("unpublished %s at %s", request.GetVolumeId(), request.GetTargetPath())
	}
}

// The driver's object must list the way in which a volume is
// used. A pod waits for it.
func TestLifecycle_mustBeListed(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	inlined, claimed := w.create(inline("one", "scratch")), w.create(pod("two", "a"))
	w.refused(inlined, "Ephemeral") // no object exists for it
	w.object(func(*storagev1.CSIDriverSpec) {})
	w.refused(inlined, "Ephemeral")
	w.object(func(spec *storagev1.CSIDriverSpec) {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	})
	w.refused(claimed, "Persistent")
	w.mount(inlined)
	w.object(ephemeral)
	w.mount(claimed)
}

// refused checks that a pod waits, and that the reason has a word.
func (w *world) refused(p *corev1.Pod, word string) {
	w.t.Helper()
	before := w.driver.Count("NodePublishVolume") + w.driver.Count("NodeStageVolume") + w.driver.Count("ControllerPublishVolume")
	_, err := w.manager.MountPod(w.t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), word) {
		w.t.Errorf("got %v, want something with %q", err, word)
	}
	if after := w.driver.Count("NodePublishVolume") + w.driver.Count("NodeStageVolume") + w.driver.Count("ControllerPublishVolume"); after != before {
		w.t.Errorf("%d calls were made all the same", after-before)
	}
}

// Without a filesystem type the driver chooses.
func TestInline_withoutAFilesystemType(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	w.mount(w.create(inline("one", "scratch")))
	request := one[*csi.NodePublishVolumeRequest](t, a)
	if mount := request.GetVolumeCapability().GetMount(); mount == nil || mount.GetFsType() != "" || request.GetStagingTargetPath() != "" {
		t.Errorf("asked for %v", request)
	}
}

// A read-only inline volume is so for the driver and for every
// container, and its group stays as it is.
func TestInline_readOnly(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	yes, kind := true, "ext4"
	p := withGroup(inline("one", "scratch"), 4321)
	p.Spec.Volumes[0].CSI.ReadOnly, p.Spec.Volumes[0].CSI.FSType = &yes, &kind
	target := w.mount(w.create(p))["scratch"]
	if !one[*csi.NodePublishVolumeRequest](t, a).GetReadonly() || !target.ReadOnly {
		t.Error("it is writable")
	}
	if got := w.groupOf(target.Path); got == 4321 {
		t.Error("its group was changed")
	}
}

// What a pod writes is there while it lives, and gone with it.
func TestInline_readWrite(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	p := w.create(inline("one", "scratch"))
	target := w.mount(p)["scratch"]
	file := filepath.Join(target.Path, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if one[*csi.NodePublishVolumeRequest](t, a).GetReadonly() || target.ReadOnly {
		t.Error("it is read-only")
	}
	w.unmount(p)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file after the pod: %v", err)
	}
	w.isIdle()
}

// Pods with one definition have volumes of their own.
func TestInline_twoPodsWithOneDefinition(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	first, second := w.create(inline("one", "scratch")), w.create(inline("two", "scratch"))
	w.mount(first)
	w.mount(second)
	got := requests[*csi.NodePublishVolumeRequest](a)
	if len(got) != 2 || got[0].GetVolumeId() == got[1].GetVolumeId() || got[0].GetTargetPath() == got[1].GetTargetPath() {
		t.Errorf("published %v", got)
	}
	w.unmount(first)
	w.mount(second)
	w.unmount(second)
	w.isIdle()
}

// Several inline volumes of one pod are several volumes.
func TestInline_severalInOnePod(t *testing.T) {
	w, a := newServing(t)
	w.object(ephemeral)
	p := w.create(inline("one", "x", "y", "z"))
	mounted := w.mount(p)
	handles := map[string]bool{}
	for _, request := range requests[*csi.NodePublishVolumeRequest](a) {
		handles[request.GetVolumeId()] = true
	}
	if len(mounted) != 3 || len(handles) != 3 {
		t.Errorf("mounted %v with handles %v", mounted, handles)
	}
	w.unmount(p)
	w.isIdle()
}

// The secret of an inline volume is of the pod's own namespace; the pod waits
// for it. What a claim's volume needs comes from where its object says.
func TestSecrets_reachTheirCallsAndNoOther(t *testing.T) {
	w, a := newServing(t, attaching)
	w.object(ephemeral)
	p := inline("one", "scratch")
	p.Spec.Volumes[0].CSI.NodePublishSecretRef = &corev1.LocalObjectReference{Name: "key"}
	w.create(p)
	w.secret("elsewhere", "key", "wrong")
	w.refused(p, "Secret ns/key")
	w.secret("ns", "key", "right")
	w.mount(p)
	if got := one[*csi.NodePublishVolumeRequest](t, a).GetSecrets()["v"]; got != "right" {
		t.Errorf("the secret is %q", got)
	}
	key := w.ensured("a")
	w.volume(key, func(pv *corev1.PersistentVolume) {
		source := pv.Spec.CSI
		for name, target := range map[string]**corev1.SecretReference{
			"attach": &source.ControllerPublishSecretRef, "stage": &source.NodeStageSecretRef, "publish": &source.NodePublishSecretRef,
		} {
			*target = &corev1.SecretReference{Namespace: "secrets", Name: name}
			w.secret("secrets", name, "for "+name)
		}
	})
	claimed := w.create(pod("two", "a"))
	w.mount(claimed)
	w.unmount(claimed)
	got := []string{
		one[*csi.ControllerPublishVolumeRequest](t, a).GetSecrets()["v"], one[*csi.NodeStageVolumeRequest](t, a).GetSecrets()["v"],
		requests[*csi.NodePublishVolumeRequest](a)[1].GetSecrets()["v"], one[*csi.ControllerUnpublishVolumeRequest](t, a).GetSecrets()["v"],
	}
	if want := []string{"for attach", "for stage", "for publish", "for attach"}; !slices.Equal(got, want) {
		t.Errorf("secrets %v, want %v", got, want)
	}
}

func (w *world) secret(namespace, name, value string) {
	w.t.Helper()
	secret := &corev1.Secret{Data: map[string][]byte{"v": []byte(value)}}
	secret.Namespace, secret.Name = namespace, name
	w.put(func(tx *store.Tx) error { return tx.Secrets().Put(store.KeyOf(secret), secret) })
}

// volume changes the PersistentVolume of a claim.
func (w *world) volume(key string, change func(*corev1.PersistentVolume)) {
	w.t.Helper()
	pv := w.bound(key).volume
	change(pv)
	w.put(func(tx *store.Tx) error { return tx.Volumes().Put(pv.Name, pv) })
}

// Facts about the pod are passed with and without podInfoOnMount, and no user can
// forge them.
func TestPodInfo_isAlwaysThereAndNeverForged(t *testing.T) {
	for _, object := range []func(*world){
		func(*world) {},
		func(w *world) { w.object(func(*storagev1.CSIDriverSpec) {}) },
		func(w *world) {
			w.object(func(spec *storagev1.CSIDriverSpec) { yes := true; spec.PodInfoOnMount = &yes })
		},
	} {
		w, a := newServing(t)
		object(w)
		w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.VolumeAttributes = map[string]string{
				"own": "x", claim.ReservedPrefix + "pod.namespace": "kube-system", claim.ReservedPrefix + "serviceAccount.tokens": "forged",
			}
		})
		w.mount(w.create(pod("web", "a")))
		got := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeContext()
		want := map[string]string{
			"own": "x", claim.ReservedPrefix + "pod.name": "web", claim.ReservedPrefix + "pod.namespace": "ns",
			claim.ReservedPrefix + "pod.uid": "pod-web", claim.ReservedPrefix + "serviceAccount.name": "default", claim.Ephemeral: "false",
		}
		if len(got) != len(want) {
			t.Errorf("context %v", got)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s is %q, want %q", key, got[key], value)
			}
		}
	}
}

// A token is never made up; a driver that asks for
// one is refused with the field's name.
func TestTokens_areRefusedByName(t *testing.T) {
	w, a := newServing(t)
	w.ensured("a")
	w.object(func(spec *storagev1.CSIDriverSpec) { spec.TokenRequests = []storagev1.TokenRequest{{}} })
	p := w.create(pod("web", "a"))
	w.refused(p, "spec.tokenRequests")
	w.object(func(*storagev1.CSIDriverSpec) {})
	w.mount(p)
	request := one[*csi.NodePublishVolumeRequest](t, a)
	if _, has := request.GetVolumeContext()[claim.ReservedPrefix+"serviceAccount.tokens"]; has || len(request.GetSecrets()) > 0 {
		t.Errorf("given %v", request.GetVolumeContext())
	}
}

// failures makes the first calls of a kind fail.
func failures(rpc string, code codes.Code, times int) func(string, int) error {
	return func(called string, number int) error {
		if called == rpc && number <= times {
			return csidriver.Fail(code, "as asked")
		}
		return nil
	}
}
