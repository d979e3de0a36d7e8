package volumes

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// registry is the drivers that are registered.
type registry struct {
	mu      sync.Mutex
	drivers map[string]*plugins.Driver
}

func (r *registry) Driver(name string) (*plugins.Driver, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if driver := r.drivers[name]; driver != nil {
		return driver, nil
	}
	return nil, plugins.ErrNotRegistered
}

func (r *registry) set(name string, driver *plugins.Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drivers[name] = driver
}

// world is a host with one driver in memory, whose volumes are tmpfs mounts.
type world struct {
	t        *testing.T
	root     string
	store    *store.Store
	registry *registry
	driver   *csidriver.Driver
	client   *plugins.Driver
	manager  *Manager
	events   []Event
	mu       sync.Mutex
}

func newWorld(t *testing.T, change ...func(*csidriver.Driver)) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test")
	}
	w := &world{t: t, root: t.TempDir(), registry: &registry{drivers: map[string]*plugins.Driver{}}, driver: csidriver.New("d.example")}
	w.driver.Publish, w.driver.Unpublish = mountTmpfs, unmountTmpfs
	for _, c := range change {
		c(w.driver)
	}
	w.serve()
	var err error
	if w.store, err = store.Open(w.root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	w.restart("boot-1", "")
	w.put(func(tx *store.Tx) error { return tx.Classes().Put("fast", class()) })
	return w
}

// serve connects the driver, as if it had registered.
func (w *world) serve() {
	w.t.Helper()
	w.client = w.register(w.driver, 5*time.Second)
}

// register connects a driver, whose calls may take so long.
func (w *world) register(driver *csidriver.Driver, timeout time.Duration) *plugins.Driver {
	w.t.Helper()
	pipe := bufconn.Listen(1 << 16)
	w.t.Cleanup(driver.Serve(pipe))
	connection, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = connection.Close() })
	client := &plugins.Driver{
		Name: driver.Name, Node: plugins.NodeInfo{ID: driver.NodeID, Topology: driver.Topology},
		Client: csiclient.New(connection, csiclient.Options{Driver: driver.Name, Timeout: timeout}),
	}
	w.registry.set(driver.Name, client)
	return client
}

// restart makes a Manager as a new process would, with failpoints.
func (w *world) restart(boot, terms string) {
	w.t.Helper()
	points, err := failpoint.Parse(terms)
	if err != nil {
		w.t.Fatal(err)
	}
	w.manager = New(Options{
		Store: w.store, Drivers: w.registry, Paths: claim.Paths{Root: w.root}, BootID: boot, Failpoints: points,
		Logger: slog.New(slog.DiscardHandler),
		Observe: func(event Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, event)
		},
	})
}

// attempts is how often a test repeats what a controller repeats.
const attempts = 10

// repeated calls do as a controller does while the outcome is uncertain.
func repeated(do func() error) (err error) {
	for range attempts {
		if err = do(); !errors.Is(err, errUncertain) {
			break
		}
	}
	return err
}

// ensure is the work of the claim's controllers until the claim has the volume that it
// asks for, or a failure is final.
func (w *world) ensure(key string) error {
	return repeated(func() error {
		for _, sync := range []syncFunc{(*Manager).syncClaim, (*Manager).syncExpansion, (*Manager).syncModification} {
			if _, err := sync(w.manager, w.t.Context(), key); err != nil {
				return err
			}
		}
		return nil
	})
}

// deleteClaim deletes a claim as a user does, and is the work of the controllers that
// then delete its volume.
func (w *world) deleteClaim(key string) error {
	w.put(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil || pvc == nil || pvc.DeletionTimestamp != nil {
			return err
		}
		now := metav1.Now()
		pvc.DeletionTimestamp = &now
		return tx.Claims().Put(key, pvc)
	})
	return w.finishDeletion(key)
}

func (w *world) finishDeletion(key string) error {
	if err := w.ensure(key); err != nil {
		return err
	}
	var names []string
	w.put(func(tx *store.Tx) error {
		all, err := tx.Volumes().All()
		for _, volume := range all {
			names = append(names, volume.Name)
		}
		return err
	})
	var failed error
	for _, name := range names {
		failed = errors.Join(failed, repeated(func() error {
			_, err := w.manager.syncVolume(w.t.Context(), name)
			return err
		}))
	}
	return failed
}

func (w *world) put(change func(*store.Tx) error) {
	w.t.Helper()
	if err := w.store.Update(change); err != nil {
		w.t.Fatal(err)
	}
}

func class() *storagev1.StorageClass {
	yes := true
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "d.example", AllowVolumeExpansion: &yes}
}

// claim stores a claim and returns its key.
func (w *world) claim(name string, change ...func(*corev1.PersistentVolumeClaim)) string {
	w.t.Helper()
	pvc := newClaim(name)
	for _, c := range change {
		c(pvc)
	}
	key := store.Key("ns", name)
	w.put(func(tx *store.Tx) error { return tx.Claims().Put(key, pvc) })
	return key
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	className := "fast"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &className, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

// ensured stores a claim that has its volume.
func (w *world) ensured(name string, change ...func(*corev1.PersistentVolumeClaim)) string {
	w.t.Helper()
	key := w.claim(name, change...)
	if err := w.ensure(key); err != nil {
		w.t.Fatal(err)
	}
	return key
}

func (w *world) bound(key string) bound {
	w.t.Helper()
	found, err := w.manager.boundClaim(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// records counts what is recorded.
func (w *world) records() (uses, pods, provisionings, claims, volumes int) {
	w.t.Helper()
	w.put(func(tx *store.Tx) error {
		u, err1 := tx.Uses().All()
		p, err2 := tx.Pods().All()
		r, err3 := tx.Provisionings().All()
		c, err4 := tx.Claims().All()
		v, err5 := tx.Volumes().All()
		uses, pods, provisionings, claims, volumes = len(u), len(p), len(r), len(c), len(v)
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	return
}

// pod makes a pod that uses a claim.
func pod(name, claimName string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName},
			}}},
		},
	}
}

// mount stores a pod and brings its volumes, as the pod controller does.
func (w *world) mount(p *corev1.Pod) map[string]Mounted {
	w.t.Helper()
	mounted, err := w.tryMount(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return mounted
}

func (w *world) tryMount(p *corev1.Pod) (mounted map[string]Mounted, err error) {
	w.create(p)
	err = repeated(func() (err error) {
		mounted, err = w.manager.MountPod(w.t.Context(), p)
		return err
	})
	return mounted, err
}

// unmount takes a pod's volumes away and then its object, as the pod controller
// does.
func (w *world) unmount(p *corev1.Pod) {
	w.t.Helper()
	if err := w.tryUnmount(p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tryUnmount(p *corev1.Pod) error {
	err := repeated(func() error { return w.manager.UnmountPod(w.t.Context(), p) })
	if err == nil {
		w.put(func(tx *store.Tx) error { return tx.Pods().Delete(store.KeyOf(p)) })
	}
	return err
}

// recoverAll does the work of a host after its start when the pods of the earlier host
// are to be removed: it undoes their uses and completes deletions, as far as the drivers
// are registered.
func (w *world) recoverAll() {
	w.t.Helper()
	w.adopt()
	var pods []*corev1.Pod
	var claims []*corev1.PersistentVolumeClaim
	w.put(func(tx *store.Tx) (err error) {
		if pods, err = tx.Pods().All(); err != nil {
			return err
		}
		claims, err = tx.Claims().All()
		return err
	})
	may := func(err error) {
		if err != nil && !errors.Is(err, plugins.ErrNotRegistered) {
			w.t.Fatal(err)
		}
	}
	for _, p := range pods {
		may(w.tryUnmount(p))
	}
	may(w.undoLeftovers())
	for _, pvc := range claims {
		if pvc.DeletionTimestamp != nil {
			may(w.finishDeletion(store.KeyOf(pvc)))
		}
	}
}

// isIdle checks that nothing is in use, recorded as in use, or left of a pod.
func (w *world) isIdle() {
	w.t.Helper()
	if _, inUse := w.driver.Left(); len(inUse) > 0 {
		w.t.Errorf("in use: %v", inUse)
	}
	if uses, pods, _, _, _ := w.records(); uses != 0 || pods != 0 {
		w.t.Errorf("%d uses and %d pods are recorded", uses, pods)
	}
	for _, directory := range []string{"pods", "plugins"} {
		entries, err := os.ReadDir(w.root + "/" + directory)
		if err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
		if len(entries) != 0 {
			w.t.Errorf("%s has %v", directory, entries)
		}
	}
}

func (w *world) calls(want ...string) {
	w.t.Helper()
	if got := w.driver.Calls(); !slices.Equal(got, want) {
		w.t.Errorf("calls\n%v, want\n%v", got, want)
	}
}

func mountTmpfs(request *csi.NodePublishVolumeRequest) error {
	target := request.GetTargetPath()
	if err := os.Mkdir(target, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	return unix.Mount("holdfast-test", target, "tmpfs", 0, "size=64k")
}

func unmountTmpfs(request *csi.NodeUnpublishVolumeRequest) error {
	target := request.GetTargetPath()
	for unix.Unmount(target, 0) == nil {
		continue
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func isMounted(path string) bool {
	at, err := KernelMounts{}.At(path, false)
	return err == nil && at.Mounted
}

func isBlockDevice(path string) bool {
	at, err := KernelMounts{}.At(path, false)
	return err == nil && at.Block
}
