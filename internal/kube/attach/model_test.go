package attach

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestModel does what a cluster does to VolumeAttachments, in random order,
// while the driver and the API server fail and the controller is stopped
// between any two steps. At every moment an attachment with the
// finalizer records each publication. In the end every attachment matches its
// status, and no deleted object exists.
func TestModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, seed)
			for step := range 150 {
				m.step()
				if step%30 == 29 {
					m.stop()
					m.check()
					m.start()
				}
			}
			m.converge()
		})
	}
}

type model struct {
	*world
	random *rand.Rand

	mu       sync.Mutex // of chance, and of what follows
	chance   *rand.Rand // for the driver and the API server, whose calls come in any order
	troubled bool

	stop        func()
	volumes     []string
	made        int
	generations map[string]int // how often a node has come back as another
	locked      bool           // the Secret of the keyed volumes does not exist
}

// keyed begins the names of volumes that a call needs the Secret for.
const keyed = "keyed-"

func secret() runtime.Object {
	return apiserver.Secret("ns", "keys", map[string]string{"key": "value"})
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		world: listing(t), random: rand.New(rand.NewPCG(seed, 1)), chance: rand.New(rand.NewPCG(seed, 2)),
		troubled: true, generations: map[string]int{},
	}
	m.driver.Before = func(context.Context, string, any) error { return m.fault() }
	m.driver.After = m.driver.Before
	fault := func(apiserver.Request) error {
		if m.fault() != nil {
			return apierrors.NewServiceUnavailable("restarting")
		}
		return nil
	}
	m.React("patch", "*", fault)
	m.LoseAnswers("patch", "*", fault)
	for _, name := range []string{"n1", "n2", "n3"} {
		m.Add(node(name))
	}
	m.Add(secret())
	m.start()
	return m
}

// fault fails one call in eight.
func (m *model) fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.troubled && m.chance.IntN(8) == 0 {
		return csidriver.Fail(codes.Unavailable, "fault")
	}
	return nil
}

// start begins a new process: empty caches, one step at which it may be stopped.
func (m *model) start() {
	env := m.NewEnv()
	env.CSI = csiclient.New(m.connection(), csiclient.Options{Driver: driverName})
	point := []string{"attach/protected", "attach/finalizer", "attach/published", "detach/unpublished"}[m.random.IntN(4)]
	points, err := failpoint.Parse(fmt.Sprintf("%s=error@%d", point, 1+m.random.IntN(3)))
	if err != nil {
		m.t.Fatal(err)
	}
	env.Failpoints = points
	m.stop = m.Run(env, New(env, Options{Reconcile: often}))
}

// finishing is a connection to a driver that completes each call even if the caller
// has left: no call is in flight after a process was stopped.
type finishing struct{ *csiclient.InProcess }

func (f finishing) Invoke(ctx context.Context, name string, request, answer any, options ...grpc.CallOption) error {
	err := f.InProcess.Invoke(context.WithoutCancel(ctx), name, request, answer, options...)
	if ctx.Err() != nil {
		return csidriver.Fail(codes.Canceled, "the caller left")
	}
	return err
}

// connection reaches the driver, and checks for the intent before each publication. The
// driver finds no attachment of a keyed volume without the credentials.
func (m *model) connection() finishing {
	connection := csiclient.NewInProcess(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if q, is := request.(*csi.ControllerPublishVolumeRequest); is {
			m.checkIntent(publication{q.GetVolumeId(), q.GetNodeId()})
		}
		q, ok := request.(*csi.ControllerUnpublishVolumeRequest)
		if ok && strings.HasPrefix(q.GetVolumeId(), "handle-"+keyed) && q.GetSecrets()["key"] == "" {
			return &csi.ControllerUnpublishVolumeResponse{}, nil
		}
		return m.driver.Intercept(ctx, request, info, handler)
	})
	csi.RegisterIdentityServer(connection, m.driver)
	csi.RegisterControllerServer(connection, m.driver)
	return finishing{connection}
}

// checkIntent fails unless an attachment with the finalizer names the publication.
func (m *model) checkIntent(where publication) {
	for _, va := range m.attachments() {
		if r := intentOf(&va); slices.Contains(va.Finalizers, finalizer) && (publication{r.handle, r.node}) == where {
			return
		}
	}
	m.t.Errorf("%v is published, and no VolumeAttachment records it", where)
}

func (m *model) attachments() []storagev1.VolumeAttachment {
	list, err := m.Core.StorageV1().VolumeAttachments().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

func (m *model) step() {
	switch m.random.IntN(11) {
	case 0, 1:
		m.makeVolume()
	case 2, 3, 4:
		m.attachSomewhere()
	case 5, 6:
		if all := m.attachments(); len(all) > 0 {
			m.remove(&all[m.random.IntN(len(all))])
		}
	case 7:
		m.changeNode()
	case 8:
		m.troubleVolume()
	case 9:
		m.stop()
		m.start()
	case 10:
		m.changeSecret(!m.locked)
	}
	time.Sleep(time.Duration(m.random.IntN(4)) * time.Millisecond)
}

// changeSecret deletes the Secret of the keyed volumes, or creates it again.
func (m *model) changeSecret(locked bool) {
	switch {
	case locked == m.locked:
	case locked:
		m.Delete(secret())
	default:
		m.Add(secret())
	}
	m.locked = locked
}

func (m *model) makeVolume() {
	m.made++
	name := fmt.Sprintf("pv-%d", m.made)
	if m.random.IntN(2) == 0 {
		name = keyed + name
	}
	m.volumes = append(m.volumes, name)
	m.Add(volume(name, func(pv *corev1.PersistentVolume) {
		if strings.HasPrefix(name, keyed) {
			withSecret(pv)
		}
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}))
}

func (m *model) attachSomewhere() {
	if len(m.volumes) == 0 {
		return
	}
	name, on := m.volumes[m.random.IntN(len(m.volumes))], m.randomNode()
	va := attachment(claim.AttachmentName("handle-"+name, driverName, on), name, on)
	_, err := m.Core.StorageV1().VolumeAttachments().Create(m.t.Context(), va, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		m.t.Fatal(err)
	}
}

func (m *model) remove(va *storagev1.VolumeAttachment) {
	err := m.Core.StorageV1().VolumeAttachments().Delete(m.t.Context(), va.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		m.t.Fatal(err)
	}
}

func (m *model) randomNode() string { return []string{"n1", "n2", "n3"}[m.random.IntN(3)] }

// changeNode loses a node, or lets it register, sometimes with another ID.
func (m *model) changeNode() {
	name := m.randomNode()
	err := m.Core.StorageV1().CSINodes().Delete(m.t.Context(), name, metav1.DeleteOptions{})
	if err == nil {
		return
	}
	if m.random.IntN(3) == 0 {
		m.generations[name]++
	}
	m.register(name)
}

func (m *model) register(name string) {
	back := node(name)
	if n := m.generations[name]; n > 0 {
		back.Spec.Drivers[1].NodeID += fmt.Sprintf("-%d", n)
	}
	m.Put(back)
}

// troubleVolume deletes a volume, by force or not, or detaches one from its
// nodes without the controller.
func (m *model) troubleVolume() {
	if len(m.volumes) == 0 {
		return
	}
	i := m.random.IntN(len(m.volumes))
	name := m.volumes[i]
	if m.random.IntN(2) == 0 {
		for _, on := range m.driver.Attachments()["handle-"+name] {
			m.driver.SetAttached("handle-"+name, on, false)
		}
		return
	}
	m.volumes = slices.Delete(m.volumes, i, i+1)
	client := m.Core.CoreV1().PersistentVolumes()
	if err := client.Delete(m.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		m.t.Fatal(err)
	}
	if m.random.IntN(2) == 0 {
		for range 100 { // the API server fails some of these requests too
			_, err := client.Patch(m.t.Context(), name, types.MergePatchType, cluster.MergePatch(map[string]any{"metadata": map[string]any{"finalizers": nil}}), metav1.PatchOptions{})
			if err == nil || apierrors.IsNotFound(err) {
				return
			}
		}
		m.t.Fatal("the volume could not be removed by force")
	}
}

// check compares the driver with the objects while no process runs.
func (m *model) check() {
	m.t.Helper()
	for handle, nodes := range m.driver.Attachments() {
		for _, on := range nodes {
			m.checkIntent(publication{handle, on})
		}
	}
}

// converge ends the faults and deletes half of the attachments.
func (m *model) converge() {
	m.mu.Lock()
	m.troubled = false
	m.mu.Unlock()
	m.changeSecret(false)
	for _, name := range []string{"n1", "n2", "n3"} {
		m.register(name)
	}
	for i, va := range m.attachments() {
		if i%2 == 0 || !slices.Contains(m.volumes, volumeName(&va)) {
			m.remove(&va)
		}
	}
	m.Converges(m.consistent)
	m.stop()
	m.check()
}

// consistent: the driver has published what the attachments say, and no more;
// no volume keeps a finalizer without need.
func (m *model) consistent() error {
	want, attached := map[string]bool{}, m.attachments()
	for _, va := range attached {
		csinode, err := m.Core.StorageV1().CSINodes().Get(context.Background(), va.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !va.Status.Attached || va.DeletionTimestamp != nil {
			return fmt.Errorf("%s: attached %t, deleted %v: %+v %+v", va.Name, va.Status.Attached, va.DeletionTimestamp, va.Status.AttachError, va.Status.DetachError)
		}
		want["handle-"+volumeName(&va)+" "+nodeID(csinode, driverName)] = true
	}
	got := map[string]bool{}
	for handle, nodes := range m.driver.Attachments() {
		for _, on := range nodes {
			got[handle+" "+on] = true
		}
	}
	for where := range want {
		if !got[where] {
			return fmt.Errorf("%s should be published; published: %v", where, got)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("published %v, want %v", got, want)
	}
	return m.noVolumeHangs()
}

func (m *model) noVolumeHangs() error {
	list, err := m.Core.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	var hanging []string
	for _, pv := range list.Items {
		if pv.DeletionTimestamp != nil {
			hanging = append(hanging, pv.Name)
		}
	}
	if len(hanging) > 0 {
		return fmt.Errorf("hanging: %s", strings.Join(hanging, " "))
	}
	return nil
}
