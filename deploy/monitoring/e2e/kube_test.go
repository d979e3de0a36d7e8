//go:build monitoring

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	memoryDriver = "memory.example.com"
	class        = "fast"
	namespace    = "shop"
	nodeName     = "node-1"
)

// kube is a cluster with an API server and a driver in memory, and a process of the built
// controllers.
type kube struct {
	*apiserver.Cluster
	t       *testing.T
	owner   *testing.T // of the processes, which outlive the parts of the test
	page    string     // address of the controllers' metrics
	process *process
	// arguments start the controllers.
	arguments []string
	*faults
}

// faults are what happens to calls of the driver, by their names.
type faults struct {
	mu     sync.Mutex
	byCall map[string]func(context.Context) error
}

// newKube starts the controllers of the whole cluster.
func newKube(t *testing.T) *kube {
	t.Helper()
	return simulate(t, node(nodeName), csiNode(nodeName)).control("")
}

// simulate makes a cluster without controllers.
func simulate(t *testing.T, nodes ...runtime.Object) *kube {
	t.Helper()
	k := &kube{t: t, faults: &faults{byCall: map[string]func(context.Context) error{}}}
	driver := csidriver.New(memoryDriver)
	driver.NodeID = "id-" + nodeName
	driver.ReportHealth(true)
	driver.Controller = append(driver.Controller, publishing()...)
	driver.Before = k.before
	k.Cluster = apiserver.New(t, driver, append(nodes, fastClass(), attachingDriver())...)
	return k
}

// control starts the controllers of the whole cluster, or those of one node and its own
// storage. They have three workers for each kind of work, and short times, so that faults
// are retried within the test.
func (k *kube) control(node string) *kube {
	k.t.Helper()
	// A short path: it is a socket's.
	directory, err := os.MkdirTemp("", "hm") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = os.RemoveAll(directory) })
	socket := filepath.Join(directory, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		k.t.Fatal(err)
	}
	here := &kube{Cluster: k.Cluster, t: k.t, owner: k.t, page: address(k.t), faults: k.faults}
	here.arguments = []string{
		"sidecars", "--csi-address=" + socket, "--kubeconfig=" + k.Kubeconfig(), "--namespace=kube-system", "--intents-namespace=intents",
		"--metrics-address=" + here.page, "--timeout=20s", "--retry-interval-start=200ms", "--retry-interval-max=1s",
		"--worker-threads=2", "--monitor-interval=1s", "--log-level=debug",
	}
	if node == "" {
		k.t.Cleanup(k.Driver.Serve(listener))
	} else {
		k.t.Cleanup(k.Driver.ServeInstance(listener, node))
		here.arguments = append(here.arguments, "--node-deployment", "--node-name="+node)
	}
	here.process = start(k.t, "sidecars", programs.holdfast, here.arguments...)
	return here
}

// restart ends the controllers' process, if it has not ended, and starts another one.
func (k *kube) restart() {
	k.process.stop()
	k.process = start(k.owner, "sidecars", programs.holdfast, k.arguments...)
}

func (k *kube) target() target { return target{job: "controllers", address: k.page} }

// fail makes calls of an RPC fail, or hang, until the returned function is called.
func (f *faults) fail(rpc string, fault func(context.Context) error) (repair func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byCall[rpc] = fault
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.byCall, rpc)
	}
}

func (f *faults) before(ctx context.Context, rpc string, _ any) error {
	f.mu.Lock()
	fault := f.byCall[rpc]
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ctx)
}

// answers is the fault of a call that answers with a code.
func answers(code codes.Code) func(context.Context) error {
	return func(context.Context) error { return csidriver.Fail(code, "injected") }
}

// hangs is the fault of a call that does not answer before its caller leaves, or the
// returned function ends it.
func hangs() (fault func(context.Context) error, release func()) {
	released := make(chan struct{})
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-released:
		}
		return nil
	}, sync.OnceFunc(func() { close(released) })
}

func fastClass() *storagev1.StorageClass {
	expand := true
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class, UID: "class-1"}, Provisioner: memoryDriver, AllowVolumeExpansion: &expand}
}

func attachingDriver() *storagev1.CSIDriver {
	attach := true
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: memoryDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
}

func node(name string) *corev1.Node {
	labels := map[string]string{csidriver.TopologyKey: name}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: memoryDriver, NodeID: "id-" + name, TopologyKeys: []string{csidriver.TopologyKey}}},
	}}
}

// claim is one of a gibibyte, for the class of the driver in memory.
func claim(name string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	storageClass := class
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": memoryDriver},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &storageClass, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, change := range changes {
		change(pvc)
	}
	return pvc
}

// provisioned waits until a claim has its PersistentVolume, and binds both, as
// Kubernetes' own controller does.
func (k *kube) provisioned(name string) *corev1.PersistentVolume {
	k.t.Helper()
	var pv *corev1.PersistentVolume
	eventually(k.t, "the volume of the claim "+name, func() (complaint string) {
		var err error
		if pv, err = k.Core.CoreV1().PersistentVolumes().Get(k.t.Context(), "pvc-uid-"+name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	pv.Status.Phase = corev1.VolumeBound
	k.Put(pv, claim(name, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.VolumeName, pvc.Status.Phase = pv.Name, corev1.ClaimBound
	}))
	return pv
}

// attachment asks for a volume on a node.
func attachment(name, volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: memoryDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}
}

// attached waits until the controllers have attached a volume.
func (k *kube) attached(name string) {
	k.t.Helper()
	eventually(k.t, "the attachment "+name, func() string {
		va, err := k.Core.StorageV1().VolumeAttachments().Get(k.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !va.Status.Attached {
			return fmt.Sprintf("is %+v", va.Status)
		}
		return ""
	})
}
