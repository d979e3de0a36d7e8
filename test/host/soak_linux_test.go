package host_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

var (
	soakOperations = flag.Int("soak.operations", 60, "random operations of TestSoak")
	soakSeed       = flag.Uint64("soak.seed", 1, "of the order of the operations")
)

// The two drivers: the one in the host's process, and one in a process of its
// own that the host starts from a unit file.
const (
	firstDriver  = "local.holdfast.dev"
	secondDriver = "second.holdfast.dev"
)

// claimModel is the expected state of a claim, after any kills.
type claimModel struct {
	class   string
	source  string // as it was given
	size    int64  // MiB
	content string // of its file, as it was last synced; "" for none
	pods    int    // that use it
}

// podModel is a pod that another program runs: its volumes are mounted, and the
// test is the workload.
type podModel struct {
	claims  []string
	inline  bool
	generic bool
}

// soak is the model next to the machine.
type soak struct {
	*machine
	random    *rand.Rand
	claims    map[string]*claimModel
	pods      map[string]*podModel
	snapshots map[string]snapshotModel
	engine    *engine
	volumes   map[string]*engineVolume
	next      int
	killed    int
	done      map[string]int
}

type snapshotModel struct {
	class, content string
	size           int64
}

// TestSoak does random operations on claims, snapshots, pods and the volumes of a
// container engine, with two drivers,
// kills the host, a driver, or both at random moments, loses the store in every way,
// fills the disk, and runs pods that try to reach the host's directory. The data of a
// claim survives, only expected volumes are mounted, and the machine is clean when
// everything is deleted.
func TestSoak(t *testing.T) {
	s := &soak{
		machine: newMachine(t), random: rand.New(rand.NewPCG(*soakSeed, 0)),
		claims: map[string]*claimModel{}, pods: map[string]*podModel{}, snapshots: map[string]snapshotModel{}, volumes: map[string]*engineVolume{}, done: map[string]int{},
	}
	s.ownFilesystem(2048) // to be filled, and to be counted as the pool's
	s.writeUnit()
	s.engine = s.servePlugin()
	s.start()
	s.always("apply the classes", func() error { return s.tryApply(soakClasses) })
	for i := range *soakOperations {
		s.operate()
		if i%25 == 24 {
			s.verify()
		}
	}
	s.verify()
	t.Logf("%v, and %d kills", s.done, s.killed)
	s.deleteAll()
	s.awaitHost()
	s.leavesNothing()
}

const soakClasses = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: first}
provisioner: local.holdfast.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: second}
provisioner: second.holdfast.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: second.holdfast.dev}
spec: {attachRequired: false, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: first}
driver: local.holdfast.dev
deletionPolicy: Delete
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: second}
driver: second.holdfast.dev
deletionPolicy: Delete
`

func driverOf(class string) string {
	if class == "first" {
		return firstDriver
	}
	return secondDriver
}

// writeUnit adds the host's second driver.
func (s *soak) writeUnit() {
	s.t.Helper()
	directory := filepath.Join(s.root, "drivers.d")
	if err := os.MkdirAll(directory, 0o700); err != nil {
		s.t.Fatal(err)
	}
	unit := fmt.Sprintf("name: %s\ncommand: [%s, driver, all, --backend=local, --driver-name=%s, --endpoint=$(CSI_ENDPOINT), --pool=%s, --kubelet-dir=%s]\nregister: true\n",
		secondDriver, binary, secondDriver, filepath.Join(s.root, "pool2"), s.root)
	if err := os.WriteFile(filepath.Join(directory, "second.yaml"), []byte(unit), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// always repeats what fails because the host was killed meanwhile.
func (s *soak) always(what string, do func() error) {
	s.t.Helper()
	var last error
	for deadline := time.Now().Add(limitOfTest); ; time.Sleep(10 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if last = err; time.Now().After(deadline) {
			s.t.Fatalf("%s: %v\n%s", what, last, s.tail())
		}
	}
}

func (s *soak) tryApply(text string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.client.Apply(ctx, []manifest.File{{Name: "soak", Data: []byte(text)}}, api.ApplyOptions{})
	return err
}

func (s *soak) tryDelete(kind, name string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.client.Delete(ctx, s.kind(kind), "default", name, api.DeleteOptions{})
	if errors.Is(err, api.ErrNotFound) {
		return nil
	}
	return err
}

// operate does one random thing, and sometimes kills something in the middle of it.
func (s *soak) operate() {
	s.t.Helper()
	operations := []struct {
		name   string
		weight int
		do     func() bool
	}{
		{"create volume", 4, s.createVolume}, {"mount volume", 14, s.mountVolume}, {"unmount volume", 10, s.unmountVolume}, {"remove volume", 3, s.removeVolume},
		{"claim", 20, s.newClaim}, {"pod", 25, s.newPod}, {"write", 25, s.write}, {"delete pod", 18, s.deletePod},
		{"delete claim", 10, s.deleteClaim}, {"grow", 6, s.grow}, {"snapshot", 6, s.snapshot}, {"restore", 6, s.restore},
		{"clone", 4, s.clone}, {"delete snapshot", 4, s.deleteSnapshot},
		{"lose the store", 5, s.loseStore}, {"fill the disk", 1, s.fillDisk}, {"intrude", 3, s.intrude},
	}
	total := 0
	for _, o := range operations {
		total += o.weight
	}
	for {
		chosen := s.random.IntN(total)
		for _, o := range operations {
			if chosen -= o.weight; chosen < 0 {
				var killed func()
				if !slices.Contains([]string{"lose the store", "fill the disk"}, o.name) { // they end the host themselves
					killed = s.maybeKill(strings.Contains(o.name, "mount volume"))
				}
				worked := o.do()
				if killed != nil {
					killed()
				}
				if worked {
					s.done[o.name]++
					return
				}
				break
			}
		}
	}
}

// maybeKill kills the host, the second driver or both, in a moment, and starts
// the host again. The returned function waits for that. It is more frequent during a
// Mount and an Unmount.
func (s *soak) maybeKill(often bool) (wait func()) {
	if n := s.random.IntN(8); n != 0 && (!often || n >= 4) {
		return nil
	}
	s.killed++
	after := time.Duration(s.random.IntN(60)) * time.Millisecond
	what := s.random.IntN(3)
	over := make(chan error, 1)
	go func() {
		time.Sleep(after)
		if what != 0 {
			s.killDriver()
		}
		if what == 1 {
			over <- nil
			return
		}
		_ = s.host.Process.Kill()
		_ = s.host.Wait() // its error reports the signal
		over <- s.launch()
	}()
	return func() {
		if err := <-over; err != nil {
			s.t.Fatal(err)
		}
	}
}

// killDriver ends the process of the second driver.
func (s *soak) killDriver() {
	for _, pid := range s.processes() {
		nodetest.Kill(s.t, pid, isSecondDriver)
	}
}

func isSecondDriver(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	return strings.Contains(string(line), "--driver-name="+secondDriver)
}

func (s *soak) name(kind string) string {
	s.next++
	return fmt.Sprintf("%s%d", kind, s.next)
}

func (s *soak) class() string { return []string{"first", "second"}[s.random.IntN(2)] }

func claimText(name, class string, size int64, source string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: %dMi}}%s}
`, name, class, size, source)
}

func (s *soak) newClaim() bool {
	if len(s.claims) >= 20 {
		return false
	}
	name, class := s.name("c"), s.class()
	size := int64(16 + 8*s.random.IntN(3))
	s.always("apply "+name, func() error { return s.tryApply(claimText(name, class, size, "")) })
	s.claims[name] = &claimModel{class: class, size: size}
	return true
}

// one chooses a claim, pod or snapshot in an order that the seed decides.
func one[T any](s *soak, of map[string]T, fits func(string, T) bool) (name string, found bool) {
	var names []string
	for name, value := range of {
		if fits(name, value) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	slices.Sort(names)
	return names[s.random.IntN(len(names))], true
}

func anyOne[T any](string, T) bool { return true }

func (s *soak) newPod() bool {
	if len(s.pods) >= 15 {
		return false
	}
	pod := &podModel{inline: s.random.IntN(4) == 0, generic: s.random.IntN(6) == 0}
	for range 1 + s.random.IntN(2) {
		if name, found := one(s, s.claims, anyOne); found && !slices.Contains(pod.claims, name) {
			pod.claims = append(pod.claims, name)
		}
	}
	name := s.name("p")
	text := s.podText(name, pod)
	s.always("apply "+name, func() error { return s.tryApply(text) })
	s.pods[name] = pod
	for _, claim := range pod.claims {
		s.claims[claim].pods++
	}
	return true
}

func (s *soak) podText(name string, pod *podModel) string {
	var mounts, volumes strings.Builder
	volume := func(name, source string) {
		fmt.Fprintf(&mounts, "{name: %s, mountPath: /%s},", name, name)
		fmt.Fprintf(&volumes, "  - {name: %s, %s}\n", name, source)
	}
	for _, claim := range pod.claims {
		volume(claim, "persistentVolumeClaim: {claimName: "+claim+"}")
	}
	if pod.inline {
		volume("inline", "csi: {driver: "+driverOf(s.class())+", fsType: ext4, volumeAttributes: {size: 16Mi}}")
	}
	if pod.generic || volumes.Len() == 0 {
		pod.generic = true
		volume("generic", "ephemeral: {volumeClaimTemplate: {spec: {storageClassName: "+s.class()+", accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}}}")
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {holdfast.dev/holder: soak}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: ["true"], volumeMounts: [%s]}]
  volumes:
%s`, name, strings.TrimSuffix(mounts.String(), ","), volumes.String())
}

func (s *soak) running(name string) *corev1.Pod {
	pod := s.pod(name)
	if pod == nil || pod.Status.Phase != corev1.PodRunning {
		return nil
	}
	return pod
}

// pod reads a pod; the host may be away for a moment.
func (s *soak) pod(name string) (pod *corev1.Pod) {
	s.always("get "+name, func() error {
		object, err := s.client.Get(s.t.Context(), s.kind("pods"), "default", name)
		if errors.Is(err, api.ErrNotFound) {
			return nil
		}
		if err == nil {
			pod = object.(*corev1.Pod)
		}
		return err
	})
	return pod
}

func (s *soak) claim(name string) (claim *corev1.PersistentVolumeClaim) {
	s.always("get "+name, func() error {
		object, err := s.client.Get(s.t.Context(), s.kind("persistentvolumeclaims"), "default", name)
		if errors.Is(err, api.ErrNotFound) {
			return nil
		}
		if err == nil {
			claim = object.(*corev1.PersistentVolumeClaim)
		}
		return err
	})
	return claim
}

// volume reads a PersistentVolume that exists.
func (s *soak) volume(name string) (volume *corev1.PersistentVolume) {
	s.always("get "+name, func() error {
		object, err := s.client.Get(s.t.Context(), s.kind("persistentvolumes"), "", name)
		if err == nil {
			volume = object.(*corev1.PersistentVolume)
		}
		return err
	})
	return volume
}

// file is where a claim's content is for a pod.
func (s *soak) file(pod *corev1.Pod, claim string) string {
	volume := s.claim(claim).Spec.VolumeName
	return filepath.Join(s.root, "pods", string(pod.UID), "volumes", "kubernetes.io~csi", volume, "mount", "content")
}

// write writes content to a claim through a pod that uses it. The pod stays until then.
func (s *soak) write() bool {
	name, found := one(s, s.pods, func(_ string, p *podModel) bool { return len(p.claims) > 0 })
	if !found {
		return false
	}
	var pod *corev1.Pod
	s.until(name+" runs", time.Minute, func() bool { pod = s.running(name); return pod != nil })
	claim := s.pods[name].claims[0]
	content := fmt.Sprintf("%s %d", claim, s.random.Uint64())
	if err := writeSynced(s.file(pod, claim), content); err != nil {
		s.t.Fatalf("%s, which runs, cannot write to %s: %v\n%s", name, claim, err, s.tail())
	}
	s.claims[claim].content = content
	return true
}

func writeSynced(path, content string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	return errors.Join(err, file.Sync(), file.Close())
}

func (s *soak) deletePod() bool {
	name, found := one(s, s.pods, anyOne)
	if !found {
		return false
	}
	s.always("delete "+name, func() error { return s.tryDelete("pods", name) })
	for _, claim := range s.pods[name].claims {
		s.claims[claim].pods--
	}
	delete(s.pods, name)
	return true
}

// deleteClaim deletes one that no pod uses, or is about to use.
func (s *soak) deleteClaim() bool {
	name, found := one(s, s.claims, func(_ string, c *claimModel) bool { return c.pods == 0 })
	if !found {
		return false
	}
	s.always("delete "+name, func() error { return s.tryDelete("persistentvolumeclaims", name) })
	delete(s.claims, name)
	return true
}

// grow grows a claim that is not mounted: the kernel lets only a process with
// CAP_SYS_RESOURCE grow a mounted ext4, and a test may not have it.
func (s *soak) grow() bool {
	name, found := one(s, s.claims, func(_ string, c *claimModel) bool { return c.size < 96 && c.pods == 0 })
	if !found {
		return false
	}
	s.until(name+" is bound", time.Minute, func() bool { return s.isBound(name) })
	if has := s.claim(name).Status.Capacity[corev1.ResourceStorage]; has.Value() < s.claims[name].size<<20 {
		return false // an earlier growth is the node's turn, and comes first
	}
	volume := s.volume(s.claim(name).Spec.VolumeName).Spec.CSI
	staging := claim.Paths{Root: s.root}.Staging(volume.Driver, volume.VolumeHandle)
	s.until(name+" is not mounted", time.Minute, func() bool { return !slices.Contains(s.mounts(), staging) })
	claim := s.claims[name]
	claim.size += 8
	s.always("grow "+name, func() error { return s.tryApply(claimText(name, claim.class, claim.size, claim.source)) })
	s.until(name+" has grown", time.Minute, func() bool {
		object, err := s.client.Get(s.t.Context(), s.kind("persistentvolumes"), "", s.claim(name).Spec.VolumeName)
		return err == nil && object.(*corev1.PersistentVolume).Spec.Capacity.Storage().Value() >= claim.size<<20
	})
	return true
}

func (s *soak) snapshot() bool {
	name, found := one(s, s.claims, func(_ string, c *claimModel) bool { return c.content != "" })
	if !found || len(s.snapshots) >= 6 {
		return false
	}
	claim, snapshot := s.claims[name], s.name("s")
	s.always("apply "+snapshot, func() error {
		return s.tryApply(fmt.Sprintf("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: %s}\nspec: {volumeSnapshotClassName: %s, source: {persistentVolumeClaimName: %s}}\n",
			snapshot, claim.class, name))
	})
	s.until(snapshot+" is ready", time.Minute, func() bool { return s.ready(snapshot) })
	s.snapshots[snapshot] = snapshotModel{class: claim.class, content: claim.content, size: claim.size}
	return true
}

func (s *soak) ready(snapshot string) (ready bool) {
	object, err := s.client.Get(s.t.Context(), s.kind("volumesnapshots"), "default", snapshot)
	if err != nil {
		return false
	}
	status := object.(*snapshotv1.VolumeSnapshot).Status
	return status != nil && status.ReadyToUse != nil && *status.ReadyToUse
}

func (s *soak) restore() bool {
	from, found := one(s, s.snapshots, anyOne)
	if !found || len(s.claims) >= 20 {
		return false
	}
	name, snapshot := s.name("c"), s.snapshots[from]
	s.copyOf(name, snapshot.class, snapshot.size, snapshot.content, "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: "+from+"}")
	return true
}

func (s *soak) clone() bool {
	from, found := one(s, s.claims, func(_ string, c *claimModel) bool { return c.content != "" })
	if !found || len(s.claims) >= 20 {
		return false
	}
	claim := s.claims[from]
	s.copyOf(s.name("c"), claim.class, claim.size, claim.content, "{kind: PersistentVolumeClaim, name: "+from+"}")
	return true
}

// copyOf makes a claim from a source, and waits: the source may be changed or
// deleted next.
func (s *soak) copyOf(name, class string, size int64, content, source string) {
	source = ", dataSource: " + source
	text := claimText(name, class, size, source)
	s.always("apply "+name, func() error { return s.tryApply(text) })
	s.until(name+" is bound", time.Minute, func() bool { return s.isBound(name) })
	s.claims[name] = &claimModel{class: class, source: source, size: size, content: content}
}

func (s *soak) isBound(name string) bool {
	object, err := s.client.Get(s.t.Context(), s.kind("persistentvolumeclaims"), "default", name)
	return err == nil && object.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimBound
}

func (s *soak) deleteSnapshot() bool {
	name, found := one(s, s.snapshots, anyOne)
	if !found {
		return false
	}
	s.always("delete "+name, func() error { return s.tryDelete("volumesnapshots", name) })
	delete(s.snapshots, name)
	return true
}

// verify waits until everything is as the model says, and compares every
// content and every mount.
func (s *soak) verify() {
	s.t.Helper()
	for name := range s.claims {
		s.until(name+" is bound and has its size", time.Minute, func() bool { return s.isBound(name) && s.hasSize(name) })
	}
	wanted := map[string]bool{}
	for name, model := range s.pods {
		var pod *corev1.Pod
		s.until(name+" runs", time.Minute, func() bool { pod = s.running(name); return pod != nil })
		for _, claim := range model.claims {
			file := s.file(pod, claim)
			wanted[filepath.Dir(file)] = true
			s.compare(claim, file)
		}
		directory := filepath.Join(s.root, "pods", string(pod.UID), "volumes", "kubernetes.io~csi")
		if model.inline {
			wanted[filepath.Join(directory, "inline", "mount")] = true
		}
		if model.generic {
			wanted[filepath.Join(directory, s.claim(name+"-generic").Spec.VolumeName, "mount")] = true
		}
	}
	mounted, lost := s.verifyVolumes()
	for _, path := range mounted {
		wanted[path] = true
	}
	s.until("nothing else is mounted for a pod", time.Minute, func() bool {
		return !slices.ContainsFunc(s.surplus(wanted), func(path string) bool {
			return !slices.ContainsFunc(lost, func(dir string) bool { return strings.HasPrefix(path, dir) })
		})
	})
	for path := range wanted {
		if !slices.Contains(s.mounts(), path) {
			s.t.Fatalf("%s is not mounted\n%s", path, s.tail())
		}
	}
}

func (s *soak) hasSize(name string) bool {
	claim := s.claim(name)
	has := claim.Status.Capacity[corev1.ResourceStorage]
	if s.claims[name].pods == 0 {
		has = resource.MustParse(fmt.Sprintf("%dMi", s.claims[name].size)) // the filesystem grows with the next pod
	}
	return has.Value() >= s.claims[name].size<<20
}

// surplus are the mounts for pods that the model does not know.
func (s *soak) surplus(wanted map[string]bool) []string {
	var found []string
	for _, path := range s.mounts() {
		if strings.HasPrefix(path, filepath.Join(s.root, "pods")+"/") && !wanted[path] {
			found = append(found, path)
		}
	}
	return found
}

func (s *soak) compare(claim, file string) {
	s.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatalf("%s: %v\n%s", claim, err, s.tail())
	}
	if string(data) != s.claims[claim].content {
		s.t.Fatalf("%s has %q; it was given %q\n%s", claim, data, s.claims[claim].content, s.tail())
	}
}

func (s *soak) deleteAll() {
	s.t.Helper()
	s.removeVolumes()
	for name := range s.pods {
		s.always("delete "+name, func() error { return s.tryDelete("pods", name) })
	}
	for name := range s.snapshots {
		s.always("delete "+name, func() error { return s.tryDelete("volumesnapshots", name) })
	}
	for name := range s.claims {
		s.always("delete "+name, func() error { return s.tryDelete("persistentvolumeclaims", name) })
	}
	for _, kind := range []string{"pods", "volumesnapshots", "volumesnapshotcontents", "persistentvolumeclaims", "persistentvolumes", "volumeattachments"} {
		s.until("no "+kind+" are left", time.Minute, func() bool {
			list, err := s.client.List(s.t.Context(), s.kind(kind), api.ListOptions{})
			return err == nil && len(list.Items) == 0
		})
	}
}

// leavesNothing looks for everything that could be left behind.
func (s *soak) leavesNothing() {
	s.t.Helper()
	s.until("nothing is mounted", 10*time.Second, func() bool { return len(s.volumeMounts()) == 0 })
	s.until("no loop device is attached", 10*time.Second, func() bool { return len(s.loops()) == 0 })
	s.stop()
	s.endProcesses() // the second driver
	s.until("no process is left", 10*time.Second, func() bool { return len(s.processes()) == 0 })
	report, err := store.Check(s.root)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kind := range []string{"volumeuses", "provisionings", "pods", "persistentvolumeclaims", "persistentvolumes"} {
		if n := report.Records[kind]; n > 0 {
			s.t.Errorf("%d %s are left in the store", n, kind)
		}
	}
	for _, problem := range report.Problems {
		s.t.Error(problem)
	}
	for _, pool := range []string{"pool", "pool2"} {
		for _, kind := range []string{"volumes", "snapshots"} {
			if left, _ := os.ReadDir(filepath.Join(s.root, pool, kind)); len(left) > 0 {
				s.t.Errorf("%s has %d %s", pool, len(left), kind)
			}
		}
	}
	for _, directory := range []string{"pods", "plugins/kubernetes.io/csi"} {
		if left, _ := filepath.Glob(filepath.Join(s.root, directory, "*", "*")); len(left) > 0 {
			s.t.Errorf("left below %s: %v", directory, left)
		}
	}
}
