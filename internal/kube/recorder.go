package kube

import (
	"fmt"
	"os"

	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// newRecorder writes events from a queue of its own, which drops what does not
// fit: an event is a courtesy, and no work waits for one. Repeats are counted
// in one object. stop ends it.
func newRecorder(clients cluster.Clients, driver string) (recorder record.EventRecorder, stop func(), err error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, snapshotscheme.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, nil, fmt.Errorf("kinds of events: %w", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("host name for events: %w", err)
	}
	// The form is the provisioner's: <driver>_<host>_<uuid>.
	component := fmt.Sprintf("%s_%s_%s", driver, host, uuid.NewUUID())
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.Events.CoreV1().Events("")})
	return broadcaster.NewRecorder(kinds, corev1.EventSource{Component: component}), broadcaster.Shutdown, nil
}
