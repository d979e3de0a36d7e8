package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// TestNewServer_answersAndEventsHaveWhatTheirVersionMade: the JSON of a version is kept, but an
// object that leaves a selection is sent as it was before, and a bookmark has no object.
func TestNewServer_answersAndEventsHaveWhatTheirVersionMade(t *testing.T) {
	t.Parallel()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	server := apiserver.NewServer(kinds, apiserver.Hooks{})
	clients, err := api.NewKubernetes(server.Config("a"))
	if err != nil {
		t.Fatal(err)
	}
	volumes := clients.CoreV1().PersistentVolumes()
	if err := server.Put(labelled("a", "n1")); err != nil {
		t.Fatal(err)
	}
	initial := true
	watching, err := volumes.Watch(t.Context(), metav1.ListOptions{LabelSelector: "node=n1", SendInitialEvents: &initial})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	for _, want := range []struct {
		kind watch.EventType
		node string
	}{{watch.Added, "n1"}, {watch.Bookmark, ""}, {watch.Deleted, "n1"}, {watch.Added, "n1"}} {
		event := <-watching.ResultChan()
		pv, _ := event.Object.(*corev1.PersistentVolume)
		if pv == nil || event.Type != want.kind || pv.Labels["node"] != want.node {
			t.Fatalf("event %s of %+v, want %s of a volume of node %q", event.Type, event.Object, want.kind, want.node)
		}
		current, err := volumes.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || current.ResourceVersion != pv.ResourceVersion {
			t.Fatalf("an answer with version %s after the event of version %s: %v", current.ResourceVersion, pv.ResourceVersion, err)
		}
		if want.kind == watch.Added {
			continue
		}
		node := map[string]string{"n1": "n2", "n2": "n1"}[current.Labels["node"]]
		if err := server.Put(labelled("a", node)); err != nil {
			t.Fatal(err)
		}
	}
}
