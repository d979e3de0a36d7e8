//go:build kubernetes

package faults

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// testTimeout limits the waits of a test; the backoff of the processes is at most 1 s.
const testTimeout = 100 * time.Second

// worlds numbers the worlds: each test has a driver, a class and a namespace of its
// own, so that all tests share one API server.
var worlds atomic.Int32 //nolint:gochecknoglobals // one per process, like the API server

// world is the driver and the objects of one test.
type world struct {
	t      *testing.T
	ctx    context.Context
	name   string // of the class and the namespace
	driver *csidriver.Driver
	socket string
	stop   func() // stops the driver, as a crash would
	proxy  *proxy
	// core and snapshots bypass the proxy.
	core      kubernetes.Interface
	snapshots snapshot.Interface
}

// newWorld serves a driver and creates a namespace and classes for it.
func newWorld(t *testing.T, configure func(*csidriver.Driver)) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, ctx: t.Context(), name: fmt.Sprintf("fault-%d", worlds.Add(1))}
	w.core, w.snapshots = kubernetes.NewForConfigOrDie(shared), snapshot.NewForConfigOrDie(shared)
	w.driver = csidriver.New(w.name + ".holdfast.dev")
	if configure != nil {
		configure(w.driver)
	}
	w.socket = filepath.Join(t.TempDir(), "csi.sock")
	w.serve()
	t.Cleanup(func() { w.stop() })
	w.proxy = newProxy(t)
	w.must(w.core.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{}))
	w.class(w.name, nil)
	w.snapshotClass()
	return w
}

func (w *world) snapshotClass() {
	w.t.Helper()
	w.must(w.snapshots.SnapshotV1().VolumeSnapshotClasses().Create(w.ctx, &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: w.name}, Driver: w.driver.Name, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}, metav1.CreateOptions{}))
}

// serve starts the driver, also again after stop.
func (w *world) serve() {
	w.t.Helper()
	listener, err := net.Listen("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop = w.driver.Serve(listener)
}

// run starts the sidecars behind the world's proxy, without leader election: no kubelet
// restarts a process that lost its lease.
func (w *world) run(more ...string) *process {
	w.t.Helper()
	return w.runBehind(w.proxy, append([]string{"--leader-election=false"}, more...)...)
}

func (w *world) runBehind(p *proxy, more ...string) *process {
	w.t.Helper()
	return sidecars(w.t, append([]string{
		"--csi-address=" + w.socket, "--kubeconfig=" + p.kubeconfig(w.t), "--namespace=" + w.name, "--timeout=3s",
		"--retry-interval-start=100ms", "--retry-interval-max=1s",
	}, more...)...)
}

func (w *world) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits until complaint returns "".
func (w *world) eventually(what string, complaint func() string) {
	w.t.Helper()
	last := ""
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if last = complaint(); last == "" {
			return
		}
	}
	w.t.Fatalf("%s: %s", what, last)
}

func (w *world) class(name string, parameters map[string]string) {
	w.t.Helper()
	expand := true
	w.must(w.core.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: w.driver.Name, Parameters: parameters, AllowVolumeExpansion: &expand,
	}, metav1.CreateOptions{}))
}

// claim makes a claim of one gibibyte.
func (w *world) claim(name string, changes ...func(*corev1.PersistentVolumeClaim)) {
	w.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &w.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, change := range changes {
		change(pvc)
	}
	w.must(w.core.CoreV1().PersistentVolumeClaims(w.name).Create(w.ctx, pvc, metav1.CreateOptions{}))
}

func (w *world) claims(count int, prefix string) {
	w.t.Helper()
	for i := range count {
		w.claim(fmt.Sprintf("%s-%d", prefix, i))
	}
}

// deleteClaim deletes a claim.
func (w *world) deleteClaim(name string) {
	w.t.Helper()
	if err := w.core.CoreV1().PersistentVolumeClaims(w.name).Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// pvcs returns the claims by name.
func (w *world) pvcs() map[string]corev1.PersistentVolumeClaim {
	w.t.Helper()
	list, err := w.core.CoreV1().PersistentVolumeClaims(w.name).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]corev1.PersistentVolumeClaim{}
	for _, pvc := range list.Items {
		all[pvc.Name] = pvc
	}
	return all
}

// bound waits until the named claims, or all claims, are Bound.
func (w *world) bound(names ...string) {
	w.t.Helper()
	w.eventually("the claims", func() string {
		all := w.pvcs()
		wanted := names
		if len(wanted) == 0 {
			wanted = slices.Sorted(maps.Keys(all))
		}
		for _, name := range wanted {
			if all[name].Status.Phase != corev1.ClaimBound {
				return name + " is not bound"
			}
		}
		return ""
	})
}

// deleteAll deletes all snapshots and claims.
func (w *world) deleteAll() {
	w.t.Helper()
	for _, err := range []error{
		w.snapshots.SnapshotV1().VolumeSnapshots(w.name).DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		w.core.CoreV1().PersistentVolumeClaims(w.name).DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// consistent waits until the driver has exactly the volumes and snapshots of the
// objects, and no intent is left.
func (w *world) consistent() {
	w.t.Helper()
	w.eventually("consistency", w.difference)
}

// empty waits until no claim, volume, snapshot or intent is left.
func (w *world) empty() {
	w.t.Helper()
	w.eventually("after everything was deleted", func() string {
		if n := len(w.pvcs()) + len(w.driver.Volumes()) + len(w.driver.SnapshotsLeft()); n > 0 {
			return fmt.Sprintf("%d claims, volumes %v and snapshots %v are left", len(w.pvcs()), w.driver.Volumes(), w.driver.SnapshotsLeft())
		}
		return w.difference()
	})
}

// difference describes how the driver and the objects differ, "" if they agree.
func (w *world) difference() string {
	w.t.Helper()
	pvs, err := w.core.CoreV1().PersistentVolumes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var said []string
	for _, pv := range pvs.Items {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == w.driver.Name {
			said = append(said, pv.Spec.CSI.VolumeHandle)
		}
	}
	contents, err := w.snapshots.SnapshotV1().VolumeSnapshotContents().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var snapshots []string
	for _, content := range contents.Items {
		if content.Spec.Driver == w.driver.Name && content.Status != nil && content.Status.SnapshotHandle != nil {
			snapshots = append(snapshots, *content.Status.SnapshotHandle)
		}
	}
	slices.Sort(said)
	slices.Sort(snapshots)
	volumes := slices.Sorted(maps.Values(w.driver.Volumes()))
	left := slices.Sorted(slices.Values(w.driver.SnapshotsLeft()))
	if !slices.Equal(said, volumes) || !slices.Equal(snapshots, left) {
		return fmt.Sprintf("the driver has the volumes %v and the snapshots %v, the objects say %v and %v", volumes, left, said, snapshots)
	}
	records, err := w.core.CoreV1().ConfigMaps(w.name).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, records := range records.Items {
		if strings.HasPrefix(records.Name, "holdfast-") && len(records.Data) > 0 {
			return fmt.Sprintf("intents are left: %v", slices.Sorted(maps.Keys(records.Data)))
		}
	}
	return ""
}

// hasEvent waits for an event on an object with this reason and these words.
func (w *world) hasEvent(object, reason string, words ...string) {
	w.t.Helper()
	w.eventually("events on "+object, func() string {
		events, err := w.core.CoreV1().Events("").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
		if err != nil {
			return err.Error()
		}
		var seen []string
		for _, event := range events.Items {
			if event.InvolvedObject.Namespace != w.name && event.InvolvedObject.Namespace != "" {
				continue
			}
			if event.Reason == reason && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event.Message, word) }) {
				return ""
			}
			seen = append(seen, event.Reason+": "+event.Message)
		}
		return fmt.Sprintf("none is %s with %q; there are %q", reason, words, seen)
	})
}
