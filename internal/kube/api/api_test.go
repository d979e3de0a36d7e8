package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// wire remembers the requests of a client, and answers all that there is no
// such thing.
type wire struct{ requests []string }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	w.requests = append(w.requests, fmt.Sprintf("%s %s %v %q", r.Method, r.URL, r.Header, body))
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewBufferString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"gone","code":404}`)),
	}, nil
}

func config(transport http.RoundTripper, content string) *rest.Config {
	return &rest.Config{
		Host: "https://api.example.com", QPS: -1, UserAgent: "holdfast/test", Transport: transport,
		ContentConfig: rest.ContentConfig{ContentType: content, AcceptContentTypes: content + ",application/json"},
	}
}

// both are the clients of this package and client-go's, each with its wire.
type both struct {
	t         *testing.T
	wires     [2]*wire
	clients   [2]api.Kubernetes
	narrow    api.Snapshots
	snapshots snapshot.Interface
}

func newBoth(t *testing.T, content string) *both {
	t.Helper()
	b := &both{t: t, wires: [2]*wire{{}, {}}}
	var err [4]error
	var theirs kubernetes.Interface
	b.clients[0], err[0] = api.NewKubernetes(config(b.wires[0], content))
	theirs, err[1] = kubernetes.NewForConfig(config(b.wires[1], content))
	b.clients[1] = apiserver.Narrow(theirs)
	b.narrow, err[2] = api.NewSnapshots(config(b.wires[0], runtime.ContentTypeJSON))
	b.snapshots, err[3] = snapshot.NewForConfig(config(b.wires[1], runtime.ContentTypeJSON))
	for _, err := range err {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *both) errors(what string, ours, theirs error) {
	b.t.Helper()
	if ours == nil || theirs == nil || ours.Error() != theirs.Error() || !apierrors.IsNotFound(ours) {
		b.t.Errorf("%s: error %v, client-go's is %v", what, ours, theirs)
	}
}

func get[T api.Object](b *both, ours, theirs api.Getter[T]) {
	b.t.Helper()
	_, mine := ours.Get(b.t.Context(), "one", metav1.GetOptions{})
	_, other := theirs.Get(b.t.Context(), "one", metav1.GetOptions{})
	b.errors("get", mine, other)
}

func read[T api.Object, L runtime.Object](b *both, ours, theirs api.Reader[T, L]) {
	b.t.Helper()
	get[T](b, ours, theirs)
	timeout := int64(300)
	for _, options := range []metav1.ListOptions{
		{LabelSelector: "a=b", FieldSelector: "metadata.name=one", Limit: 500, Continue: "more"},
		{ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, TimeoutSeconds: &timeout, AllowWatchBookmarks: true, SendInitialEvents: new(bool)},
	} {
		_, mine := ours.List(b.t.Context(), options)
		_, other := theirs.List(b.t.Context(), options)
		b.errors("list", mine, other)
		_, mine = ours.Watch(b.t.Context(), options)
		_, other = theirs.Watch(b.t.Context(), options)
		b.errors("watch", mine, other)
	}
}

func write[T api.Object](b *both, ours, theirs api.Writer[T], object T) {
	b.t.Helper()
	_, mine := ours.Create(b.t.Context(), object, metav1.CreateOptions{})
	_, other := theirs.Create(b.t.Context(), object, metav1.CreateOptions{})
	b.errors("create", mine, other)
	_, mine = ours.Update(b.t.Context(), object, metav1.UpdateOptions{})
	_, other = theirs.Update(b.t.Context(), object, metav1.UpdateOptions{})
	b.errors("update", mine, other)
	for _, kind := range []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType} {
		_, mine = ours.Patch(b.t.Context(), "one", kind, []byte("[]"), metav1.PatchOptions{}, "status")
		_, other = theirs.Patch(b.t.Context(), "one", kind, []byte("[]"), metav1.PatchOptions{}, "status")
		b.errors("patch", mine, other)
	}
}

func all[T api.Object, L runtime.Object](b *both, ours, theirs api.Resource[T, L], object T) {
	b.t.Helper()
	object.SetName("one")
	object.SetLabels(map[string]string{"a": "b"})
	read[T, L](b, ours, theirs)
	write[T](b, ours, theirs, object)
	version := "7"
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
	b.errors("delete", ours.Delete(b.t.Context(), "one", options), theirs.Delete(b.t.Context(), "one", options))
}

// TestClients_requestsAreThoseOfTheClientsets, byte for byte.
func TestClients_requestsAreThoseOfTheClientsets(t *testing.T) {
	for _, content := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(content, func(t *testing.T) {
			b := newBoth(t, content)
			b.core()
			b.others()
			b.custom()
			if difference := cmp.Diff(b.wires[1].requests, b.wires[0].requests); difference != "" {
				t.Errorf("client-go's requests (-), these (+):\n%s", difference)
			}
			if len(b.wires[0].requests) < 100 {
				t.Errorf("there were %d requests only", len(b.wires[0].requests))
			}
		})
	}
}

func (b *both) core() {
	ours, theirs := b.clients[0].CoreV1(), b.clients[1].CoreV1()
	all(b, ours.ConfigMaps("ns"), theirs.ConfigMaps("ns"), &corev1.ConfigMap{Data: map[string]string{"k": "v"}})
	read(b, ours.Namespaces(), theirs.Namespaces())
	all(b, ours.Nodes(), theirs.Nodes(), &corev1.Node{})
	all(b, ours.PersistentVolumeClaims("ns"), theirs.PersistentVolumeClaims("ns"), &corev1.PersistentVolumeClaim{})
	all(b, ours.PersistentVolumeClaims(""), theirs.PersistentVolumeClaims(""), &corev1.PersistentVolumeClaim{})
	all(b, ours.PersistentVolumes(), theirs.PersistentVolumes(), &corev1.PersistentVolume{})
	read(b, ours.Pods("ns"), theirs.Pods("ns"))
	get(b, ours.Secrets("ns"), theirs.Secrets("ns"))
	write(b, ours.Events("ns"), theirs.Events("ns"), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Reason: "Because"})
}

func (b *both) others() {
	ours, theirs := b.clients[0].StorageV1(), b.clients[1].StorageV1()
	read(b, ours.CSIDrivers(), theirs.CSIDrivers())
	read(b, ours.CSINodes(), theirs.CSINodes())
	all(b, ours.CSIStorageCapacities("ns"), theirs.CSIStorageCapacities("ns"), &storagev1.CSIStorageCapacity{})
	read(b, ours.StorageClasses(), theirs.StorageClasses())
	all(b, ours.VolumeAttachments(), theirs.VolumeAttachments(), &storagev1.VolumeAttachment{})
	read(b, ours.VolumeAttributesClasses(), theirs.VolumeAttributesClasses())
	all(b, b.clients[0].CoordinationV1().Leases("ns"), b.clients[1].CoordinationV1().Leases("ns"), &coordinationv1.Lease{})
	get(b, b.clients[0].AppsV1().ReplicaSets("ns"), b.clients[1].AppsV1().ReplicaSets("ns"))
	mayI := [2]api.AuthorizationV1{b.clients[0].AuthorizationV1(), b.clients[1].AuthorizationV1()}
	for _, may := range mayI {
		_, _ = may.SelfSubjectAccessReviews().Create(b.t.Context(), &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
		_, _ = may.SelfSubjectRulesReviews().Create(b.t.Context(), &authorizationv1.SelfSubjectRulesReview{}, metav1.CreateOptions{})
	}
	for _, client := range b.clients {
		if _, err := client.Served(b.t.Context(), snapshotv1.SchemeGroupVersion); !apierrors.IsNotFound(err) {
			b.t.Errorf("what is not served gives %v", err)
		}
	}
}

func (b *both) custom() {
	ours, theirs := b.narrow.SnapshotV1(), b.snapshots.SnapshotV1()
	all(b, ours.VolumeSnapshots("ns"), theirs.VolumeSnapshots("ns"), &snapshotv1.VolumeSnapshot{})
	all(b, ours.VolumeSnapshotContents(), theirs.VolumeSnapshotContents(), &snapshotv1.VolumeSnapshotContent{})
	read(b, ours.VolumeSnapshotClasses(), theirs.VolumeSnapshotClasses())
	groups, known := b.narrow.GroupsnapshotV1(), b.snapshots.GroupsnapshotV1()
	read(b, groups.VolumeGroupSnapshotContents(), known.VolumeGroupSnapshotContents())
	read(b, groups.VolumeGroupSnapshotClasses(), known.VolumeGroupSnapshotClasses())
}
