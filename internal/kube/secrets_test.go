package kube

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
	"github.com/holdfast-csi/holdfast/test/surfaces"
)

// callSecret is the value of the Secret of every call; Kubernetes' own tools write such a
// file with a newline, and drivers cut it off.
const callSecret = "markerOfEveryCall4700"

// got waits until a call was repeated after its failures.
func got(t *testing.T, repeats *csidriver.Repeats, rpc string) {
	t.Helper()
	eventually(t, func() error {
		if n := repeats.Count(rpc); n < 3 {
			return fmt.Errorf("%s got secrets %d times", rpc, n)
		}
		return nil
	})
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func secretParameters(prefix string) map[string]string {
	return map[string]string{
		"csi.storage.k8s.io/" + prefix + "secret-name": "keys", "csi.storage.k8s.io/" + prefix + "secret-namespace": "ns",
	}
}

// A driver repeats the secrets of each call in its errors. What the controllers write
// to the API server (events, statuses, conditions, intents, annotations), their log at its
// most verbose level, and their traces do not have them.
func TestRun_showsNoSecretThatTheDriverRepeats(t *testing.T) {
	driver, repeats := attaching(), &csidriver.Repeats{Times: 2, Remark: "remark-of-the-driver"}
	driver.Plugin = driver.Plugin[:2] // without topology the cluster needs no node
	driver.Before = repeats.Before
	class := newClass()
	expand := true
	class.Parameters, class.AllowVolumeExpansion = secretParameters(""), &expand
	c := apiserver.New(t, driver, class, newClaim("a"),
		apiserver.Secret("ns", "keys", map[string]string{"password": "\"" + callSecret + "\" & more\n"}),
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "n"}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, Driver: driverName, Parameters: secretParameters("snapshotter-"), DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		},
		&groupv1.VolumeGroupSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "g"}, Driver: driverName, Parameters: secretParameters("group-snapshotter-"), DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	log, spans := &lockedLog{}, tracingtest.New()
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	connection := csiclient.NewInProcess(driver.Intercept)
	csi.RegisterIdentityServer(connection, driver)
	csi.RegisterControllerServer(connection, driver)
	csi.RegisterGroupControllerServer(connection, driver)
	start(t, options(c, func(o *Options) {
		o.Logger, o.Tracer = logger, spans.Tracer(t)
		o.CSI = csiclient.New(connection, csiclient.Options{Driver: driverName, Logger: logger})
	}))

	var pv *corev1.PersistentVolume
	eventually(t, func() (err error) { pv, err = volumeOf(c, "a"); return err })
	got(t, repeats, "CreateVolume")
	c.Add(snapshotContent(pv), groupContent(pv))
	got(t, repeats, "CreateSnapshot")
	got(t, repeats, "CreateVolumeGroupSnapshot")
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}},
	}
	c.Add(attachment)
	got(t, repeats, "ControllerPublishVolume")
	grow(t, c, pv)
	got(t, repeats, "ControllerExpandVolume")
	c.Delete(attachment)
	got(t, repeats, "ControllerUnpublishVolume")

	texts := map[string]string{"the log": log.String(), "the traces": spans.Text() + fmt.Sprint(spans.All()), "the writes": writes(c)}
	shown := surfaces.Surfaces{}
	for what, text := range texts {
		shown[what] = []byte(text)
		if !strings.Contains(text, "remark-of-the-driver: login -p (redacted)") {
			t.Errorf("%s: the driver's errors are not there: %d bytes", what, len(text))
		}
	}
	shown.Hides(t, callSecret)
	shown.Shows(t, "remark-of-the-driver", slices.Collect(maps.Keys(texts))...)
}

// grow binds the claim, as Kubernetes does, and asks for more.
func grow(t *testing.T, c *apiserver.Cluster, pv *corev1.PersistentVolume) {
	t.Helper()
	claims := c.Core.CoreV1().PersistentVolumeClaims("ns")
	pvc, err := claims.Get(c.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pvc = pvc.DeepCopy()
	pvc.Spec.VolumeName = pv.Name
	pvc.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if pvc, err = claims.Update(c.Context(), pvc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pvc.Status.Phase, pvc.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if _, err := claims.UpdateStatus(c.Context(), pvc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ofSecret is a content with the annotations that snapshot-controller writes.
func ofSecret(name string, keys claim.SnapshotKeys) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{keys.SecretName: "keys", keys.SecretNamespace: "ns"}}
}

func snapshotContent(pv *corev1.PersistentVolume) *snapshotv1.VolumeSnapshotContent {
	class := "s"
	return &snapshotv1.VolumeSnapshotContent{ObjectMeta: ofSecret("content", claim.VolumeSnapshotKeys()), Spec: snapshotv1.VolumeSnapshotContentSpec{
		Driver: driverName, VolumeSnapshotClassName: &class, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: "s", UID: "uid-s"},
		Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &pv.Spec.CSI.VolumeHandle},
	}}
}

func groupContent(pv *corev1.PersistentVolume) *groupv1.VolumeGroupSnapshotContent {
	class := "g"
	return &groupv1.VolumeGroupSnapshotContent{ObjectMeta: ofSecret("group", claim.GroupSnapshotKeys()), Spec: groupv1.VolumeGroupSnapshotContentSpec{
		Driver: driverName, VolumeGroupSnapshotClassName: &class, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		VolumeGroupSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: "g", UID: "uid-g"},
		Source:                 groupv1.VolumeGroupSnapshotContentSource{VolumeHandles: []string{pv.Spec.CSI.VolumeHandle}},
	}}
}

// writes are the bodies of what the controllers wrote, events among them.
func writes(c *apiserver.Cluster) string {
	var text strings.Builder
	for _, request := range c.Writes() {
		if request.Process != "" {
			fmt.Fprintf(&text, "%s %s %s/%s: %s\n", request.Verb, request.Resource, request.Namespace, request.Name, request.Body)
		}
	}
	return text.String()
}
