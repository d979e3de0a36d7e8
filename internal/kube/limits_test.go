package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func limits(t *testing.T, line string) Limits {
	t.Helper()
	var l Limits
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	l.Bind(flags)
	if err := flags.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLimits_checkNamesTheFlag(t *testing.T) {
	for line, want := range map[string]string{
		"":                                       "",
		"--timeout=0s":                           "--timeout: 0s is not above zero",
		"--attacher-timeout=-1s":                 "--attacher-timeout: -1s is below zero",
		"--attacher-timeout=10m":                 "",
		"--resizer-modify-timeout=-1s":           "--resizer-modify-timeout: -1s is below zero",
		"--retry-interval-start=10m":             "--retry-interval-start: 10m0s is above --retry-interval-max, 5m0s",
		"--snapshotter-retry-interval-start=10m": "--snapshotter-retry-interval-start: 10m0s is above --snapshotter-retry-interval-max, 5m0s",
		"--resizer-retry-interval-max=1ms":       "--resizer-retry-interval-start: 1s is above --resizer-retry-interval-max, 1ms",
		"--resizer-retry-interval-start=1h --resizer-retry-interval-max=2h": "",
	} {
		l := limits(t, line)
		err := l.Check()
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: got %v, want %q", line, err, want)
		}
	}
}

// The connection to the driver ends no call before the timeout of its controller.
func TestLimits_longestTimeout(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"":                                   time.Minute,
		"--snapshotter-timeout=1h":           time.Hour,
		"--attacher-timeout=1s":              time.Minute,
		"--resizer-modify-timeout=5m":        5 * time.Minute,
		"--timeout=2h --attacher-timeout=1h": 2 * time.Hour,
	} {
		l := limits(t, line)
		if got := l.LongestTimeout(); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

// deadlines records how long each RPC may take, in whole hours above which it is.
type deadlines struct {
	mu    sync.Mutex
	hours map[string]int
}

func (d *deadlines) before(ctx context.Context, rpc string, _ any) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hours[rpc] = int((time.Until(deadline) + 30*time.Minute) / time.Hour)
	return nil
}

// connectWithin connects to a driver as the commands do.
func connectWithin(driver *csidriver.Driver, timeout time.Duration) *csiclient.Client {
	connection := csiclient.NewInProcess(driver.Intercept)
	csi.RegisterIdentityServer(connection, driver)
	csi.RegisterControllerServer(connection, driver)
	csi.RegisterNodeServer(connection, driver)
	csi.RegisterGroupControllerServer(connection, driver)
	return csiclient.New(connection, csiclient.Options{Driver: driver.Name, Timeout: timeout})
}

// changingObjects are a claim without a volume, one that is to grow and change its class,
// an attachment and a snapshot.
func changingObjects() []runtime.Object {
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	name, gold, handle, cold := "pv", "gold", "handle", "cold"
	growing := newClaim("growing")
	growing.UID = "uid-growing"
	growing.Spec.VolumeName, growing.Spec.VolumeAttributesClassName = name, &gold
	growing.Spec.Resources.Requests = size("2Gi")
	growing.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("1Gi")}
	return []runtime.Object{
		newClass(), newClaim("new"), growing,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:               &corev1.ObjectReference{Namespace: growing.Namespace, Name: growing.Name, UID: growing.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}},
		}},
		&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: gold}, DriverName: driverName},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "n"}}}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		}},
		&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: cold}, Driver: driverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain},
		&snapshotv1.VolumeSnapshotContent{
			ObjectMeta: metav1.ObjectMeta{Name: "content", Finalizers: []string{claim.VolumeSnapshotKeys().Finalizer}},
			Spec: snapshotv1.VolumeSnapshotContentSpec{
				Driver: driverName, VolumeSnapshotClassName: &cold, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handle},
				VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: "snapshot", UID: "uid-snapshot"},
			},
		},
	}
}

// Each call of the driver has the timeout of its controller, from the flag to the driver.
func TestLimits_eachControllerHasItsTimeout(t *testing.T) {
	l := limits(t, "--provisioner-timeout=10h --attacher-timeout=20h --resizer-timeout=30h --resizer-modify-timeout=40h --snapshotter-timeout=50h "+
		"--health-monitor-timeout=60h")
	driver := attaching()
	driver.Plugin = driver.Plugin[:2] // without topology the cluster needs no node
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	driver.ReportHealth(true)
	driver.AddVolume("handle", 1<<30)
	seen := &deadlines{hours: map[string]int{}}
	driver.Before = seen.before
	c := apiserver.New(t, driver, changingObjects()...)
	start(t, options(c, func(o *Options) {
		o.Limits, o.CSI = l, connectWithin(driver, l.LongestTimeout())
		o.Tuning.Bind(pflag.NewFlagSet("test", pflag.ContinueOnError)) // sets the defaults
	}))
	for rpc, want := range map[string]int{
		"CreateVolume": 10, "ControllerPublishVolume": 20, "ControllerExpandVolume": 30, "ControllerModifyVolume": 40, "CreateSnapshot": 50,
		"ControllerListVolumeHealth": 60,
	} {
		eventually(t, func() error {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if got := seen.hours[rpc]; got != want {
				return fmt.Errorf("%s may take %dh, not %dh", rpc, got, want)
			}
			return nil
		})
	}
}
