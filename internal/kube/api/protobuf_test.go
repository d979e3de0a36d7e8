package api_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// speaker answers in protobuf, as an API server does that is asked for it.
type speaker struct {
	t      *testing.T
	answer runtime.Object // with its kind
	events []metav1.WatchEvent
}

func (s speaker) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		s.t.Errorf("%s accepts %q", r.URL, r.Header.Get("Accept"))
	}
	var body bytes.Buffer
	kind := runtime.ContentTypeProtobuf
	whole, raw := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
	if r.URL.Query().Get("watch") == "true" {
		kind += ";stream=watch"
		frames := streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(&body), raw)
		for i := range s.events {
			if err := frames.Encode(&s.events[i]); err != nil {
				s.t.Error(err)
			}
		}
	} else if err := whole.Encode(s.answer, &body); err != nil {
		s.t.Error(err)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Request: r, Body: io.NopCloser(&body)}, nil
}

func speaking(t *testing.T, answer runtime.Object, kind schema.GroupVersionKind, events ...metav1.WatchEvent) api.Kubernetes {
	t.Helper()
	answer.GetObjectKind().SetGroupVersionKind(kind)
	client, err := api.NewKubernetes(config(speaker{t: t, answer: answer, events: events}, runtime.ContentTypeProtobuf))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestClients_readProtobuf(t *testing.T) {
	volume := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: "7"}, Spec: corev1.PersistentVolumeSpec{StorageClassName: "fast"}}
	got, err := speaking(t, volume.DeepCopy(), corev1.SchemeGroupVersion.WithKind("PersistentVolume")).CoreV1().PersistentVolumes().Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || cmp.Diff(&volume, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	list := storagev1.VolumeAttachmentList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []storagev1.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
	listed, err := speaking(t, list.DeepCopy(), storagev1.SchemeGroupVersion.WithKind("VolumeAttachmentList")).StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	if err != nil || cmp.Diff(&list, listed) != "" {
		t.Errorf("%v, %v", listed, err)
	}
	served := metav1.APIResourceList{GroupVersion: "snapshot.storage.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "volumesnapshots"}}}
	found, err := speaking(t, served.DeepCopy(), schema.GroupVersionKind{Version: "v1", Kind: "APIResourceList"}).Served(t.Context(), schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"})
	if err != nil || len(found.APIResources) != 1 || found.APIResources[0].Name != "volumesnapshots" {
		t.Errorf("%v, %v", found, err)
	}
}

func TestClients_watchInProtobuf(t *testing.T) {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	var text bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(node, &text); err != nil {
		t.Fatal(err)
	}
	client := speaking(t, &corev1.Node{}, corev1.SchemeGroupVersion.WithKind("Node"), metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: text.Bytes()}})
	watched, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	event := <-watched.ResultChan()
	if got, ok := event.Object.(*corev1.Node); !ok || event.Type != "ADDED" || got.Name != "one" {
		t.Errorf("%v", event)
	}
}

// Errors come as the kind Status, of no group's own scheme.
func TestClients_readErrorsInProtobuf(t *testing.T) {
	status := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Message: "modified", Code: http.StatusConflict}
	client := speaking(t, status, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{}); err == nil || err.Error() != "modified" {
		t.Errorf("%v", err)
	}
}
